"""The sockets of a server: where requests come, where clients are watched, and the bell between threads."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack

from lmcache_core.errors import ConfigError
from lmcache_core.metrics.server import ServerTally
from lmcache_core.runtime_dir import runtime_dirs
from lmcache_core.server.listener import SocketFile, listen_on_port
from lmcache_core.server.spare import SpareFiles
from lmcache_core.server.switchboard import Switchboard
from lmcache_core.wire.address import ServerAddress

_LIFELINE = ".life"
_LINGER_S = 0.25


class Endpoint:
    """Claimed at construction, all or nothing.

    Args:
        address: Where to listen.
        tally: Where connections are counted.
        environ: Says where the runtime directory is.

    Attributes:
        address: With the port that was given.
        spare: Lets clients in, also when the process may open no more files.
        switchboard: The connections of clients; for the control thread alone, but for what it says.
        lifeline: Listening; becomes the lifeline's.
        lifeline_path: Where clients find it.

    Raises:
        ConfigError: The address is taken or cannot be used; says by whom or why.
    """

    def __init__(self, address: ServerAddress, tally: ServerTally, environ: Mapping[str, str] = os.environ) -> None:
        try:
            with ExitStack() as claimed:
                listener = self._listen(address, environ, claimed)
                self.spare = SpareFiles(str(self.address))
                claimed.callback(self.spare.close)
                self.switchboard = Switchboard(listener, self.spare, tally)
                self._held = claimed.pop_all()
        except OSError as error:
            raise ConfigError(f"server_address: {address}: {error.strerror or error}") from error

    def say_last(self) -> None:
        """Send what waits to be sent, for a moment. Once the control thread has ended."""
        self.switchboard.say_last(_LINGER_S)

    def close(self) -> None:
        """Let go of the address."""
        self.switchboard.close()
        self._held.close()

    def disown(self) -> None:
        """In a forked child: leave the address to the parent."""
        self.switchboard.disown()
        self.spare.disown()
        self._file.disown()

    def _listen(self, address: ServerAddress, environ: Mapping[str, str], claimed: ExitStack) -> socket.socket:
        if address.path is None:
            listener = listen_on_port(address.port)
            claimed.callback(listener.close)
            address = ServerAddress(port=listener.getsockname()[1])
            place = runtime_dirs(environ)[0] / f"server-{address.port}"
        else:
            place = address.path
        self.address = address
        self._file = file = SocketFile(place, str(address))
        claimed.callback(file.close)
        if address.path is not None:
            listener = file.listen()
            claimed.callback(listener.close)
        self.lifeline = file.listen(_LIFELINE)
        self.lifeline_path = f"{place}{_LIFELINE}"
        claimed.callback(self.lifeline.close)
        return listener
