"""One worker of a soak: a client of the server, its traffic, and a file that says how it fares."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import torch
from tests.soak.content import MODELS
from tests.soak.traffic import Traffic

from lmcache_core import connect

CALL_TIMEOUT_S = 2.0
_TELL_S = 0.5
_IDLE_S = 0.05


def work(folder: Path, address: str, number: int, seed: int) -> None:
    """Run until SIGTERM or until the parent is gone; end the process.

    The exit code is 0, or 1 when something was wrong, which the file then says.
    """
    torch.set_num_threads(1)
    logging.basicConfig(filename=folder / f"worker-{number}.log", level=logging.WARNING, force=True)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        code = _run(folder / f"worker-{os.getpid()}.json", address, number, seed, stopped)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(file: Path, address: str, number: int, seed: int, stopped: threading.Event) -> int:
    model = MODELS[number % len(MODELS)]
    name = f"w{number}-{os.getpid()}"
    overrides = {"mode": "server", "server_address": address, "blocking_timeout_secs": CALL_TIMEOUT_S}
    cache = connect(overrides=overrides, environ={}, layout=model.layout, model_name=model.name)
    traffic = Traffic(cache, model, random.Random(seed), name)
    parent, told_s, wrong = os.getppid(), 0.0, ""
    while not stopped.is_set() and os.getppid() == parent and not wrong:
        try:
            if cache.is_healthy():
                traffic.turn()
            else:
                traffic.counts["unhealthy"] += 1
                traffic.turn()
                stopped.wait(_IDLE_S)
        except Exception:
            wrong = traceback.format_exc()
        if wrong or time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            _tell(file, traffic, number, wrong)
    cache.close()
    _tell(file, traffic, number, wrong)
    return int(bool(wrong))


def _tell(file: Path, traffic: Traffic, number: int, wrong: str) -> None:
    """Write the figures in one step, so that a killed worker leaves the last whole ones."""
    figures = {
        "number": number,
        "pid": os.getpid(),
        "counts": traffic.counts,
        "longest_s": traffic.longest_s,
        "wrong": wrong,
    }
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(figures))
    beside.replace(file)
