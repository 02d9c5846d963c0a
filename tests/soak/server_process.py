"""A real ``lmcachectl serve`` in a process of its own, asked and watched from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq
from tests.soak.ledger import EXACT, ask

from lmcache_core.wire.codec import Encoder, answers
from lmcache_core.wire.messages import Status, StatusReport

_START_S = 30.0
_ASK_S = 5.0
_STOP_S = 40.0
_RUN = "import sys; from lmcache_core.cli.main import main; sys.exit(main())"


class ServerProcess:
    """Starts a server; a context manager.

    Args:
        config: TOML, without the address.
        folder: Where its log goes; None for a temporary one.
        keeps_ledger: Whether it tells `allocated_bytes`, for which it is a little slower; it cannot be started again then.
    """

    def __init__(self, config: str, folder: Path | None = None, *, keeps_ledger: bool = False) -> None:
        # Not pytest's folder: a unix socket's path may have 107 bytes only.
        self._own = Path(tempfile.mkdtemp(prefix="lmc-"))
        self.address = f"ipc://{self._own}/s.sock"
        self.log = (folder or self._own) / "server.log"
        self._ledger = self._own / "ledger.sock" if keeps_ledger else None
        self._addresses = self._own / "addresses.json"
        self._file = self._own / "server.toml"
        self._file.write_text(f'server_address = "{self.address}"\n{config}')
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ServerProcess:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it and wait until it serves."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
        environ |= {"XDG_RUNTIME_DIR": str(self._own), "LMCACHE_TRACK_USAGE": "false"}
        self._addresses.unlink(missing_ok=True)
        program = ["-c", _RUN]
        if self._ledger is not None:
            program = ["-m", "tests.soak.ledger", str(self._ledger)]
            environ |= EXACT
        command = [sys.executable, *program, "serve", "--config", str(self._file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--address-file", str(self._addresses)], stdout=log, stderr=log, env=environ, cwd=self._own
            )
        end = time.monotonic() + _START_S
        while not self._addresses.exists():
            if self.exit_code is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def terminate(self) -> int:
        """Ask it to end; give its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_STOP_S)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_STOP_S)

    def status(self) -> Mapping[str, Any]:
        """Ask it for its status. Raises TimeoutError."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as asker:
            asker.linger = 0
            asker.connect(self.address)
            asker.send(Encoder().encode(Status(1)))
            if not asker.poll(int(_ASK_S * 1000)):
                raise TimeoutError(f"the server gave no status in {_ASK_S} s")
            answer = answers().decode(asker.recv())
        assert isinstance(answer, StatusReport), answer
        document: Mapping[str, Any] = json.loads(answer.document)
        return document

    def allocated_bytes(self) -> int:
        """Ask a server that keeps a ledger what it has allocated, once its garbage is collected. Raises OSError."""
        assert self._ledger is not None
        return ask(self._ledger)

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_STOP_S)
        shutil.rmtree(self._own, ignore_errors=True)
