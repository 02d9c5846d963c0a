"""Asks a running cache server for its status; every way to fail is one sentence. Needs the extra ``server``."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

import zmq

from lmcache_core.cli.cache_page import clean
from lmcache_core.errors import ConfigError, LMCacheError, WireError
from lmcache_core.wire.address import LOOPBACK, default_address, parse_address
from lmcache_core.wire.codec import Encoder, answers
from lmcache_core.wire.messages import Refused, Status, StatusReport

TIMEOUT_S = 2.0

_CALL = 1
_START = "start one with: lmcachectl serve, or name its address with --address"


class ServerPage:
    """The server at one address.

    Args:
        address: As the user wrote it; ``""`` for the default one.

    Raises:
        ConfigError: It is no address.
    """

    def __init__(self, address: str) -> None:
        try:
            self._place = parse_address(address or default_address())
        except ConfigError as error:
            problems = [problem.replace("server_address:", "--address:", 1) for problem in error.problems]
            raise ConfigError(*problems) from None
        self.address = str(self._place)

    def read(self, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """Ask once.

        Raises:
            LMCacheError: Nobody answers, or it is another program; says where, and what to do.
        """
        self._knock(timeout_s)
        document = self._ask(timeout_s)
        if not isinstance(document.get("health"), Mapping):
            raise LMCacheError(f"what answers at {self.address} is no cache server; {_START}")
        return document

    def _knock(self, timeout_s: float) -> None:
        """See whether anybody listens: ZeroMQ would go on trying in silence."""
        path = self._place.path
        target: Any = (LOOPBACK, self._place.port) if path is None else str(path)
        try:
            with socket.socket(socket.AF_INET if path is None else socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.settimeout(timeout_s)
                knocking.connect(target)
        except FileNotFoundError:
            raise self._nobody("there is no such socket") from None
        except ConnectionRefusedError:
            reason = "connection refused" if path is None else "its server has ended and left the socket"
            raise self._nobody(reason) from None
        except PermissionError:
            raise LMCacheError(
                f"the cache server at {self.address} is another user's; run this as the user that runs the server"
            ) from None
        except OSError as error:
            raise self._nobody((error.strerror or type(error).__name__).lower()) from None

    def _ask(self, timeout_s: float) -> dict[str, Any]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        asking = context.socket(zmq.DEALER)
        try:
            asking.setsockopt(zmq.LINGER, 0)
            asking.connect(self.address)
            asking.send(Encoder().encode(Status(call=_CALL)))
            if not asking.poll(round(timeout_s * 1000)):
                raise LMCacheError(
                    f"no answer from {self.address} within {timeout_s:g} s: the server is stopped or stuck, or it is "
                    "another program"
                )
            return self._document(asking.recv())
        except zmq.ZMQError as error:
            raise self._nobody(str(error).lower()) from None
        finally:
            asking.close()
            context.term()

    def _document(self, frame: bytes) -> dict[str, Any]:
        try:
            answer = answers().decode(frame)
            document = json.loads(answer.document) if isinstance(answer, StatusReport) else None
        except (WireError, ValueError):
            return {}
        if isinstance(answer, Refused):
            raise LMCacheError(f"the server at {self.address} refuses: {clean(answer.message)}")
        return document if isinstance(document, dict) else {}

    def _nobody(self, reason: str) -> LMCacheError:
        return LMCacheError(f"no cache server answers at {self.address}: {reason}; {_START}")
