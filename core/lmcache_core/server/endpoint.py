"""The sockets of a server: where requests come, where clients are watched, and the bell between threads."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import ExitStack

import zmq

from lmcache_core.runtime_dir import runtime_dirs
from lmcache_core.server.listener import SocketFile, listen_on_port
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES

log = logging.getLogger(__name__)

BELL = b"lmcache-core bell"
"""Who rings; no client is told apart by this name, and one that takes it only makes the server look around."""

_LIFELINE = ".life"
_BELL_ADDRESS = "inproc://bell"
_LINGER_MS = 250
_LOOK_AROUND_MS = 500
"""Longest that the control thread waits before it looks after sessions."""

_CUT_OFF_BYTES = 4 * MOST_MESSAGE_BYTES
"""ZeroMQ itself ends a connection that sends more; what lies between is refused with a sentence."""


class Endpoint:
    """Claimed at construction, all or nothing.

    Attributes:
        address: With the port that was given.
        router: For the control thread alone.
        lifeline: Listening; becomes the lifeline's.
        lifeline_path: Where clients find it.

    Raises:
        ConfigError: The address is taken or cannot be used; says by whom or why.
    """

    def __init__(self, address: ServerAddress, environ: Mapping[str, str] = os.environ) -> None:
        with ExitStack() as claimed:
            listener = self._listen(address, environ, claimed)
            self._context = zmq.Context()
            claimed.callback(self._context.term)
            self.router = self._context.socket(zmq.ROUTER)
            claimed.callback(self.router.close, 0)
            self._bell = self._context.socket(zmq.DEALER)
            claimed.callback(self._bell.close, 0)
            self._bind(listener)
            self._held = claimed.pop_all()
        self._bell_lock = threading.Lock()
        self._closed = False

    def ring(self) -> None:
        """Make the control thread look around; from any thread."""
        with self._bell_lock:
            if self._closed:
                return
            try:
                self._bell.send(b"", zmq.NOBLOCK)
            except zmq.Again:
                return  # enough rings wait already

    def close(self) -> None:
        """Send what waits to be sent for a moment, and let go of the address."""
        with self._bell_lock:
            if self._closed:
                return
            self._closed = True
            self.router.close(_LINGER_MS)
        self._held.close()

    def _listen(self, address: ServerAddress, environ: Mapping[str, str], claimed: ExitStack) -> socket.socket:
        if address.path is None:
            listener = listen_on_port(address.port)
            claimed.callback(listener.close)
            address = ServerAddress(port=listener.getsockname()[1])
            place = runtime_dirs(environ)[0] / f"server-{address.port}"
        else:
            place = address.path
        self.address = address
        file = SocketFile(place, str(address))
        claimed.callback(file.close)
        if address.path is not None:
            listener = file.listen()
            claimed.callback(listener.close)
        self.lifeline = file.listen(_LIFELINE)
        self.lifeline_path = f"{place}{_LIFELINE}"
        claimed.callback(self.lifeline.close)
        return listener

    def _bind(self, listener: socket.socket) -> None:
        router = self.router
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.RCVTIMEO, _LOOK_AROUND_MS)
        router.setsockopt(zmq.MAXMSGSIZE, _CUT_OFF_BYTES)
        router.bind(_BELL_ADDRESS)
        router.setsockopt(zmq.USE_FD, listener.fileno())
        router.bind(str(self.address))
        listener.detach()
        router.setsockopt(zmq.USE_FD, -1)
        self._bell.setsockopt(zmq.IDENTITY, BELL)
        self._bell.connect(_BELL_ADDRESS)
