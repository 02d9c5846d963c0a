"""Speaks TLS in front of a server's unix socket, as stunnel does; the server of the wheel has no TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from pathlib import Path

_PATIENCE_S = 30.0
_PIECE_BYTES = 256 * 1024


class TLSRelay:
    """Accepts TLS on a free port of loopback and passes everything on, both ways.

    Args:
        context: The server's side.
        target: Unix socket of the server.
    """

    def __init__(self, context: ssl.SSLContext, target: Path) -> None:
        self._context = context
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="tls-relay", daemon=True)]

    def start(self) -> None:
        self._threads[0].start()

    def stop(self) -> None:
        """Close everything; wakes all threads."""
        for connected in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), name="tls-relay", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            self._open |= {client, server}
            try:
                with self._context.wrap_socket(client, server_side=True) as secure:
                    self._open.add(secure)
                    server.connect(str(self._target))
                    self._relay(secure, server)
                    self._open.discard(secure)
            finally:
                self._open -= {client, server}

    @staticmethod
    def _relay(secure: ssl.SSLSocket, server: socket.socket) -> None:
        while True:
            ready = [secure] if secure.pending() else select.select([secure, server], [], [])[0]
            for source in ready:
                piece = source.recv(_PIECE_BYTES)
                if not piece:
                    return
                (server if source is secure else secure).sendall(piece)
