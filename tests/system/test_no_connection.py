"""By default a cache makes no connection, asks no name server, and writes nothing in the user's home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
import json, sys, threading

calls = []
sys.addaudithook(lambda event, arguments: calls.append(event) if event in {"socket.connect", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.sendto", "socket.sendmsg"} else None)

import torch
from lmcache_core import CacheManager, KVLayout

layout = KVLayout(num_layers=2, num_kv_heads=1, head_size=4, dtype="float32")
manager = CacheManager.from_config(overrides=json.loads(sys.argv[1]), layout=layout, model_name="smollm2")
with manager:
    tokens = list(range(32))
    kv = torch.ones(layout.kv_shape(32))
    manager.engine.store(tokens, kv)
    manager.engine.lookup(tokens)
    found = int(manager.engine.retrieve(tokens, torch.zeros_like(kv)).sum())
    threads = [thread.name for thread in threading.enumerate()]
clients = sorted({"lmcache_core.telemetry.transport", "httpx"} & set(sys.modules))
print(json.dumps({"calls": calls, "threads": threads, "clients": clients, "found": found}))
"""


def run(tmp_path: Path, environ: dict[str, str], **overrides: object) -> dict[str, Any]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_") and name != "DO_NOT_TRACK"
    }
    overrides = {"max_local_cpu_size": 0.01, "chunk_size": 16, **overrides}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(overrides)],
        env={**kept, "HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["found"] == 32
    return found


def test_the_default_talks_to_nobody(tmp_path: Path) -> None:
    found = run(tmp_path, {})

    assert (found["calls"], found["clients"]) == ([], [])
    assert not any("usage" in name for name in found["threads"])
    assert not (tmp_path / ".config").exists()
    assert not (tmp_path / ".local").exists()


def test_a_no_outweighs_an_endpoint(tmp_path: Path) -> None:
    found = run(tmp_path, {"DO_NOT_TRACK": "1"}, usage_endpoint="http://127.0.0.1:9")

    assert (found["calls"], found["clients"]) == ([], [])
    assert not (tmp_path / ".config").exists()
