"""The client of the bare echo, and the process it talks to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

import zmq


class Echo:
    """A DEALER socket to a process that echoes; a context manager.

    Args:
        folder: Where its socket file goes.
    """

    def __init__(self, folder: Path) -> None:
        address = f"ipc://{folder}/echo.sock"
        command = [sys.executable, str(Path(__file__).with_name("echo_server.py")), address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(address)

    def call(self, frame: bytes) -> None:
        """Send and wait for the same bytes."""
        self._socket.send(frame)
        self._socket.recv()

    def __enter__(self) -> Echo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._context.term()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(10)
