"""A status as a server sends it, and a server that sends what a test wants."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zmq

from lmcache_core.wire.codec import Encoder, requests
from lmcache_core.wire.messages import Status, StatusReport

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
_DOCUMENT: Mapping[str, Any] = {
    "product": "lmcache-core",
    "version": "0.1.0",
    "protocol": 1,
    "boot_id": "b1",
    "pid": 4711,
    "instance_id": "host-7",
    "uptime_s": 7512.3,
    "address": "ipc:///run/lmcache-core/server.sock",
    "config_file": "/etc/lmcache/lmcache.toml",
    "http": "http://127.0.0.1:6999",
    "grpc": "127.0.0.1:7999",
    "health": {"healthy": True, "state": "up", "reason": "", "since_s": 91.0},
    "plugins_failed": {},
    "arena": {"capacity_bytes": 64 << 30, "used_bytes": 41 << 30, "leased_bytes": 96 << 20, "chunks": 1312},
    "tiers": [
        {
            "name": "LocalCPUBackend",
            "url": "",
            "state": "up",
            "waiting_chunks": 0,
            "used_bytes": 41 << 30,
            "capacity_bytes": 64 << 30,
            "reason": "",
        },
        {
            "name": "RemoteBackend",
            "url": "redis://cache-1:6379",
            "state": "open",
            "waiting_chunks": 128,
            "used_bytes": None,
            "capacity_bytes": None,
            "reason": "connection refused",
        },
    ],
    "sessions": [
        {
            "session": 1,
            "name": "worker-0",
            "pid": 101,
            "age_s": 7000.0,
            "idle_s": 0.1,
            "registrations": [{"model_name": MODEL, "world_size": 2, "ranks": [0], "chunk_tokens": 256}],
            "leases": 2,
            "leased_bytes": 64 << 20,
            "oldest_lease_s": 0.4,
            "promises": 3,
        },
        {
            "session": 2,
            "name": "worker-1",
            "pid": 102,
            "age_s": 7000.0,
            "idle_s": 0.1,
            "registrations": [{"model_name": MODEL, "world_size": 2, "ranks": [1], "chunk_tokens": 256}],
            "leases": 1,
            "leased_bytes": 32 << 20,
            "oldest_lease_s": 612.0,
            "promises": 0,
        },
    ],
    "tenants": [
        {"tenant": "default", "used_bytes": 30 << 30, "quota_bytes": 0, "chunks": 960},
        {"tenant": "team-a", "used_bytes": 11 << 30, "quota_bytes": 16 << 30, "chunks": 352},
    ],
    "counters": {
        "calls": 1_234_567,
        "refused_calls": 3,
        "requested_tokens": 91_234_567,
        "hit_tokens": 66_123_456,
        "stored_tokens": 25_111_111,
        "retrieved_tokens": 66_000_000,
        "stored_bytes": 3 << 40,
        "retrieved_bytes": 8 << 40,
    },
    "draining": False,
}


def status_document() -> dict[str, Any]:
    """A copy of its own for each test."""
    return copy.deepcopy(dict(_DOCUMENT))


class ScriptedServer:
    """Answers each request on a socket file with the bytes that a test gives; None is no answer."""

    def __init__(self, folder: Path, answer: Callable[[bytes], bytes | None]) -> None:
        self.address = f"ipc://{folder / 'scripted.sock'}"
        self._answer = answer
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self.address)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)
        self._context.term()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._socket.poll(20):
                who, frame = self._socket.recv_multipart()
                answer = self._answer(frame)
                if answer is not None:
                    self._socket.send_multipart([who, answer])
        self._socket.close()


def telling(document: object) -> Callable[[bytes], bytes]:
    """Answer a request for the status with a document."""

    def answer(frame: bytes) -> bytes:
        asked = requests().decode(frame)
        assert isinstance(asked, Status)
        return Encoder().encode(StatusReport(call=asked.call, document=json.dumps(document).encode()))

    return answer
