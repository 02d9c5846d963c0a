"""A running cache, in this process or in a server's, behind the one face."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from lmcache_core import CacheManager, KVLayout, connect

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
CHUNK_TOKENS = 4
LIMIT_S = 30.0

_PROGRAM = """
import json, sys
from lmcache_core import CacheServer
with CacheServer.from_config(overrides=json.loads(sys.argv[1]), environ={}):
    print("ready", flush=True)
    sys.stdin.read()
"""


class ServerProcess:
    """A `CacheServer` in a process of its own; a context manager.

    Args:
        overrides: Configuration.
    """

    def __init__(self, **overrides: object) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmc-"))
        self.address = f"ipc://{self.folder}/s.sock"
        self._overrides = {"server_address": self.address, **overrides}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, or start again, and wait until it serves."""
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(self._overrides)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self.stop()
            raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-3000:]}")

    def stop(self) -> None:
        """Let it end in order; kill it if it does not."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(LIMIT_S)
        self._process.stdout.close()
        self._process = None

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(LIMIT_S)
        self.stop()

    def pause(self) -> None:
        """Freeze it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # it may go on for a moment

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Stage(Protocol):
    """A cache, and what a test must see of its inside."""

    cache: Any  # a `KVCache`, and a `CacheEngine` where a test breaks its adapter
    folder: Path | None
    """Where the store behind keeps files; None for none."""

    def held(self) -> tuple[int, int]:
        """Promises of lookups that nobody came for, and leases of clients."""

    def close(self) -> None:
        """End everything."""


class InProcess:
    """A `CacheManager` of this process."""

    folder: Path | None = None

    def __init__(self, layout: KVLayout = LAYOUT, **overrides: object) -> None:
        self._manager = CacheManager.from_config(overrides=overrides, environ={}, layout=layout, model_name="m")
        self._manager.start()
        self.cache: Any = self._manager.engine

    def held(self) -> tuple[int, int]:
        return self._manager.storage.promises, 0

    def close(self) -> None:
        self._manager.stop()


class OverTheWire:
    """A `CacheClient` of a server in another process."""

    folder: Path | None = None

    def __init__(self, layout: KVLayout = LAYOUT, **overrides: object) -> None:
        with ExitStack() as stack:
            self.server = stack.enter_context(ServerProcess(**overrides))
            self.cache: Any = stack.enter_context(self.connect(layout))
            self._stack = stack.pop_all()

    def connect(self, layout: KVLayout = LAYOUT, *, timeout_s: float = 10.0, **who: Any) -> Any:
        """Another client of the same server; close it."""
        overrides = {"server_address": self.server.address, "blocking_timeout_secs": timeout_s}
        return connect(overrides=overrides, environ={}, layout=layout, model_name="m", **who)

    def held(self) -> tuple[int, int]:
        status: Mapping[str, Any] = self.cache.status()
        return status["arena"]["promises"], sum(one["leases"] for one in status["sessions"])

    def close(self) -> None:
        self._stack.close()


def let_in(client: Any) -> Any:
    """Give a client once its server has let it in or refused it: an attempt to connect lasts a second at most."""
    assert until(lambda: not client.reason.endswith(("in time", "timed out"))), client.reason
    return client


MakeStage = Callable[..., Stage]


def until(true: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Wait for what another thread or process does."""
    end = time.monotonic() + limit_s
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return true()
