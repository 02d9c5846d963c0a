"""A child that an engine forks neither keeps its parent's clients waiting nor takes its address away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.served import socket_path
from tests.core.server.talker import PATIENCE_S, Talker

ENGINE = """
    import os, sys, time
    from lmcache_core import CacheManager, KVLayout, listen

    layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
    keys = {"chunk_size": 4, "max_local_cpu_size": 0.01}
    with CacheManager.from_config(overrides=keys, environ={}, layout=layout, model_name="m") as manager:
        server = listen(manager, sys.argv[1])
        print("serving", flush=True)
        for word in sys.stdin:
            child = os.fork()
            if not child:
                if word == "stop\\n":
                    server.stop()
                    os._exit(0)
                time.sleep(600)
                os._exit(0)
            if word == "stop\\n":
                os.waitpid(child, 0)
            print(child, flush=True)
"""


class Engine:
    """Forks when told."""

    def __init__(self, address: str) -> None:
        self.children: list[int] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(ENGINE), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "serving"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def fork(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.children.append(int(self._line()))


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    engine = Engine(socket_path(folder))
    yield engine
    engine.process.kill()
    for child in engine.children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    engine.process.communicate()


@pytest.fixture
def talker(engine: Engine, folder: Path, context: zmq.Context[Any]) -> Iterator[Talker]:
    talker = Talker(socket_path(folder), context)
    yield talker
    talker.close()


def test_the_parents_death_is_seen_although_a_child_lives(engine: Engine, folder: Path, talker: Talker) -> None:
    talker.attach(talker.hello())
    bare = socket.socket(socket.AF_UNIX)
    bare.settimeout(PATIENCE_S)
    with bare:
        bare.connect(str(folder / "s.sock"))
        assert bare.recv(256)
        talker.ping()
        engine.fork("live")
        engine.process.kill()

        assert bare.recv(256) == b""
    assert talker.lifeline is not None
    assert talker.lifeline.recv(1) == b""


def test_a_child_that_stops_its_copy_takes_nothing_from_the_parent(
    engine: Engine, folder: Path, talker: Talker, context: zmq.Context[Any]
) -> None:
    talker.attach(talker.hello())
    engine.fork("stop")

    assert talker.ping().healthy

    other = Talker(socket_path(folder), context)
    other.attach(other.hello())
    other.close()
