"""A real ``lmcachectl serve`` for tests: a process of its own, stopped by its process id."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

_RUN = "import sys; from lmcache_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
_START_S = 60.0
_STOP_S = 30.0


def lmcachectl(*words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-c", _RUN, *words],
        capture_output=True,
        text=True,
        timeout=_START_S,
        check=False,
        env=clean_environ(environ),
    )


def clean_environ(added: dict[str, str] | None = None) -> dict[str, str]:
    """The environment without the user's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LMCACHE_", "XDG_RUNTIME"))}
    return {**kept, "COLUMNS": "160", **(added or {})}


class ServeProcess:
    """One server; a context manager that waits until it serves.

    Args:
        folder: For its socket and files; short, as socket paths are.
        settings: Keys of the configuration.
        name: Of its socket and files in the folder.
        options: More words of the command line.
        environ: More variables.

    Attributes:
        address: Where it serves.
        addresses: What it wrote to its address file.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "s",
        options: tuple[str, ...] = (),
        environ: dict[str, str] | None = None,
        **settings: object,
    ) -> None:
        self.folder = folder
        self.address = f"ipc://{folder / name}"
        self._name = name
        self._address_file = folder / f"{name}.json"
        self._environ = environ or {}
        values = {"max_local_cpu_size": 0.01, "server_address": self.address, **settings}
        self._words = [
            *("serve", "--address-file", str(self._address_file), *options),
            *(word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")),
        ]
        self._notified: list[bytes] = []
        self._process: subprocess.Popen[str] | None = None
        self._printed: dict[str, list[str]] = {"out": [], "err": []}
        self._readers: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def addresses(self) -> dict[str, Any]:
        return dict(json.loads(self._address_file.read_text()))

    @property
    def has_addresses(self) -> bool:
        return self._address_file.exists()

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return "".join(self._printed["out"])

    @property
    def err(self) -> str:
        """What it has logged so far."""
        return "".join(self._printed["err"])

    def start(self, *, wait: bool = True) -> ServeProcess:
        """Start it; wait until it says that it serves, as systemd would."""
        socket_file = self.folder / f"{self._name}.notify"
        socket_file.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(socket_file))
            manager.settimeout(0.2)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _RUN, *self._words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                env=clean_environ({"NOTIFY_SOCKET": str(socket_file), **self._environ}),
            )
            self._read("out", self._process.stdout)
            self._read("err", self._process.stderr)
            if wait:
                self._wait_ready(manager)
        return self

    def _wait_ready(self, manager: socket.socket) -> None:
        assert self._process is not None
        for _ in range(int(_START_S / 0.2)):
            try:
                told = manager.recv(4096)
            except TimeoutError:
                if self._process.poll() is not None:
                    raise AssertionError(f"it ended with {self._process.returncode}: {self.ended()[1]}") from None
                continue
            if told.startswith(b"READY=1"):
                return
        raise AssertionError(f"it does not serve: {self.err}")

    def send(self, one: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, one)

    def ended(self, timeout_s: float = _STOP_S) -> tuple[int, str]:
        """Wait for its end; give the exit code and the log."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(10)
        return code, self.err

    def stop(self) -> int:
        """End it as a service manager does; give the exit code."""
        self.send(signal.SIGTERM)
        return self.ended()[0]

    def status(self) -> dict[str, Any]:
        """Give what ``lmcachectl status --json`` prints."""
        done = lmcachectl("status", "--json", "--address", self.addresses["address"])
        return dict(json.loads(done.stdout))

    def __enter__(self) -> ServeProcess:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self.ended()

    def _read(self, name: str, stream: Any) -> None:
        def run() -> None:
            with stream:
                for line in stream:
                    self._printed[name].append(line)

        self._readers.append(threading.Thread(target=run, daemon=True))
        self._readers[-1].start()
