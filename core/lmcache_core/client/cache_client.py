"""The cache of a server on this host, as an inference engine sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from lmcache_core.client.failures import ServerCallError
from lmcache_core.client.remote_access import RemoteAccess
from lmcache_core.client.wish import Wish
from lmcache_core.contracts.cache import KVAdapter
from lmcache_core.engine import CacheEngine
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.threads import PeriodicThreadRegistry
from lmcache_core.wire.address import ServerAddress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server a client talks to.

    Attributes:
        address: Where it listens.
        boot_id: Of its process; ``""`` while there is none.
        version: Of its package; ``""`` while there is none.
    """

    address: str
    boot_id: str
    version: str


class CacheClient(CacheEngine):
    """A `KVCache` over a cache server; an absent server makes every call a no-op, never an error.

    Safe from several threads, and in a forked child, which opens a session of its own.
    A context manager.

    Attributes:
        metrics: Prometheus families, `metrics.registry`.
        plugins: Those in force in this process.

    Args:
        address: Of the server.
        wish: The engine's model and shape.
        make_adapter: Makes the adapter for the engine's tensors, given the tokens in a chunk.
        metrics: Families of this process to count in.
        timeout_s: Longest that a call may take, ``blocking_timeout_secs``.
        name: Of this client, for the server's status.
        threads: Where the background thread is entered; None for nowhere.
    """

    def __init__(
        self,
        address: ServerAddress,
        wish: Wish,
        *,
        make_adapter: Callable[[int], KVAdapter],
        metrics: CacheMetrics,
        timeout_s: float,
        name: str,
        threads: PeriodicThreadRegistry | None = None,
    ) -> None:
        self.metrics = metrics
        self.plugins = wish.plugins
        self._remote = RemoteAccess(
            address,
            wish,
            name=name,
            threads=threads,
        )
        metrics.is_healthy.set_function(lambda: float(self.is_healthy()))
        super().__init__(self._remote, make_adapter=make_adapter, metrics=metrics, timeout_s=timeout_s)

    @property
    def server(self) -> ServerIdentity:
        """Which server this client talks to."""
        session = self._remote.link.session
        address = str(self._remote.link.address)
        if session is None:
            return ServerIdentity(address, "", "")
        return ServerIdentity(address, session.boot_id, session.version)

    @property
    def reason(self) -> str:
        """``""``, or one sentence why the cache is not used."""
        return self._remote.reason

    def status(self) -> dict[str, Any]:
        """Give the server's status, JSON values; ``{"error": sentence}`` where there is none to be had."""
        try:
            document = json.loads(self._remote.status())
        except (ServerCallError, ValueError) as error:
            return {"error": str(error)}
        return document if isinstance(document, dict) else {"error": "the cache server's status is no object"}

    def close(self) -> None:
        """End the session; every later call is a no-op. Waits a few seconds for copies under way."""
        self._remote.close()

    def __enter__(self) -> CacheClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _degraded(self, operation: str, answer: T) -> T:
        self._remote.nudge()  # the server may just be back
        return super()._degraded(operation, answer)

    def _refused(self, operation: str, error: Exception, default: T) -> T:
        if not isinstance(error, ServerCallError):
            return super()._refused(operation, error, default)
        self._metrics.request_errors.labels(operation, error.reason).inc()
        self._warn(f"{operation} {error.reason}", "%s refused: %s", operation, error)
        return default
