"""Sends bytes to the operator's collector. Imported only when there is one."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

from lmcache_core.contracts.url import StoreURL
from lmcache_core.version import __version__

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it goes out.

    Attributes:
        url: Where to, without credentials.
        target: Path on the server.
        headers: All that are ours; credentials are in `authorization`.
        body: JSON.
    """

    url: str
    target: str
    headers: dict[str, str]
    body: bytes


class UsageMessageSender:
    """Posts messages to one collector: once each, no retry, no redirect, no proxy.

    Args:
        endpoint: ``http://`` or ``https://`` address; its path is kept, its user and password become
            basic authentication.
        timeout_s: Longest that one message may take. Looking the name up is the system's and may take longer.
    """

    def __init__(self, endpoint: StoreURL, *, timeout_s: float = TIMEOUT_S) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s

    def request(self, path: str, body: bytes) -> Request:
        """Give the request that `send` would make."""
        target = f"{quote(self._endpoint.path.rstrip('/'))}/{path}"
        return Request(
            url=f"{str(self._endpoint).rstrip('/')}/{path}",
            target=target,
            headers={
                "Content-Type": "application/json",
                "User-Agent": f"lmcache-core/{__version__}",
                "Connection": "close",
            },
            body=body,
        )

    def send(self, path: str, body: bytes, *, timeout_s: float | None = None) -> str:
        """Post one message and wait for the status.

        Args:
            path: The message's ``ENDPOINT``.
            body: JSON.
            timeout_s: Instead of the sender's own.

        Returns:
            ``""`` when the collector took it, else why not, as ``gap_reason`` has it.
        """
        request = self.request(path, body)
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        started_s = time.monotonic()
        try:
            return self._post(request, limit_s)
        except ssl.SSLError:
            return "tls"
        except socket.gaierror:
            return "dns"
        except ConnectionRefusedError:
            return "refused"
        except (OSError, http.client.HTTPException) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() - started_s >= limit_s
            return "timeout" if late else "connection"

    def _post(self, request: Request, limit_s: float) -> str:
        connection = self._connect(limit_s)
        connection.connect()
        watchdog = threading.Timer(limit_s, _hang_up, (connection,))  # a timeout of the socket is for each read alone
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request("POST", request.target, request.body, {**request.headers, **self._authorization()})
            status = connection.getresponse().status
        finally:
            watchdog.cancel()
            connection.close()
        return "" if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES else f"http_{status}"

    def _connect(self, limit_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._endpoint.scheme == "https" else http.client.HTTPConnection
        return kind(self._endpoint.host, self._endpoint.port, timeout=limit_s)

    def _authorization(self) -> dict[str, str]:
        if not (self._endpoint.username or self._endpoint.password):
            return {}
        pair = f"{self._endpoint.username}:{self._endpoint.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _hang_up(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already
