"""One remote backend of LMCache, as health checks of this project's plugins see it."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from lmcache.utils import CacheEngineKey
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from lmcache_core import (
    BackendError,
    BackendTimeoutError,
    BackendUsage,
    ChunkKey,
    Frame,
    LoadResult,
    StoreURL,
    WorkerPool,
)
from lmcache_plugins.upstream.health_keys import HealthKeys
from lmcache_plugins.upstream.probe_value import ProbeValue, unwrapped

T = TypeVar("T")

_PROBE_MODEL = "lmcache-core-probe"


class RemoteTier:
    """`lmcache_core.Tier` over a ``RemoteBackend``.

    A ping asks the server itself, also where the connector has no ping: then for a key that is nowhere.
    Values of a round trip travel in chunks of full size, past LMCache's serde, as some connectors read
    nothing shorter. A connector that cannot remove, such as LMCache's own for Redis, is handed no value,
    which would stay in the server for ever: there each step only asks. Every call ends at its timeout.

    Args:
        name: LMCache's name of the backend.
        backend: The backend.
        options: The health keys.
    """

    def __init__(self, name: str, backend: Any, options: HealthKeys) -> None:
        self.name = name
        self.options = options
        self.upstream_url = str(backend.remote_url)
        self.url = _shown(self.upstream_url)
        self._backend = backend
        self._absent = os.urandom(8)
        self._kept: dict[bytes, bytes] = {}
        self._pool = WorkerPool(f"lmcache-{name}-remove", 1)
        weakref.finalize(self, self._pool.close)

    @property
    def load_failures(self) -> int:
        """Failed gets since start, as LMCache counts them: its misses are among them."""
        return int(self._backend.get_blocking_failed_count)

    @property
    def refused_writes(self) -> int:
        """LMCache does not tell a full server from a broken one."""
        return 0

    def usage(self) -> BackendUsage:
        """LMCache's connectors cannot tell."""
        return BackendUsage()

    def notices(self) -> Sequence[str]:
        """LMCache's connectors notice nothing."""
        return ()

    def ping(self, *, timeout_s: float) -> float:
        """Ask the server; see `lmcache_core.Tier.ping`."""
        connection = self._connect()
        started_s = time.monotonic()
        if connection.support_ping():
            code = self._run(connection.ping(), timeout_s, "ping")
            if code:
                raise BackendError(f"{self.name} ({self.url}): ping gave code {code}")
        else:
            self._run(connection.exists(self._key(self._absent)), timeout_s, "ping")
        return (time.monotonic() - started_s) * 1000

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, timeout_s: float) -> None:
        """Put values, each at the head of a chunk."""
        connection = self._connect()
        for key, frame in items:
            if not self._may_write(connection):
                self._kept = {key.digest: bytes(frame)}
                self._run(connection.exists(self._key(key.digest)), timeout_s, "exists")
                continue
            value = ProbeValue(self._backend, connection)
            try:
                value.fill(frame)
                self._run(value.put(self._key(key.digest)), timeout_s, "put")
            finally:
                value.let_go()

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, timeout_s: float) -> list[LoadResult]:
        """Get values back."""
        connection = self._connect()
        results = []
        for key, out in zip(keys, outs, strict=True):
            if not self._may_write(connection):
                results.append(self._recall(connection, key, out, timeout_s))
                continue
            value = ProbeValue(self._backend, connection)
            try:
                found = self._run(value.get(self._key(key.digest)), timeout_s, "get")
                results.append(value.read(out) if found else LoadResult.MISS)
            finally:
                value.let_go()
        return results

    def delete(self, keys: Sequence[ChunkKey], *, timeout_s: float) -> int:
        """Remove values."""
        connection = self._connect()
        if not self._may_write(connection):
            return sum(self._kept.pop(key.digest, None) is not None for key in keys)
        removing = self._pool.submit(lambda: sum(bool(connection.remove_sync(self._key(key.digest))) for key in keys))
        return self._result(removing, timeout_s, "remove")

    def _recall(self, connection: Any, key: ChunkKey, out: memoryview, timeout_s: float) -> LoadResult:
        self._run(connection.exists(self._key(key.digest)), timeout_s, "exists")
        kept = self._kept.get(key.digest)
        if kept is None or len(kept) != len(out):
            return LoadResult.MISS
        out[:] = kept
        return LoadResult.HIT

    def _connect(self) -> Any:
        if self._backend.connection is None:
            self._backend.init_connection()
        if self._backend.connection is None:
            raise BackendError(f"{self.name} ({self.url}): lmcache has no connection to it")
        return self._backend.connection

    def _may_write(self, connection: Any) -> bool:
        """Whether values can be removed again, and there is memory to make them in: not in a scheduler."""
        return self._backend.local_cpu_backend is not None and _can_remove(connection)

    def _key(self, digest: bytes) -> Any:
        return CacheEngineKey(
            model_name=_PROBE_MODEL,
            world_size=1,
            worker_id=0,
            chunk_hash=int.from_bytes(digest[-8:], "little") >> 1,  # as some connectors keep it in a signed word
            dtype=self._backend.metadata.kv_dtype,
        )

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float, what: str) -> T:
        return self._result(asyncio.run_coroutine_threadsafe(work, self._backend.loop), timeout_s, what)

    def _result(self, future: Future[T], timeout_s: float, what: str) -> T:
        wait([future], timeout=timeout_s)
        if not future.done():
            future.cancel()
            raise BackendTimeoutError(f"{self.name} ({self.url}): {what} gave no answer within {timeout_s:g} s")
        try:
            return future.result()
        except Exception as error:  # the border of LMCache's connectors, which raise what they like
            raise BackendError(f"{self.name} ({self.url}): {what} raised {type(error).__name__}: {error}") from error


def _can_remove(connection: Any) -> bool:
    return type(unwrapped(connection)).remove_sync is not RemoteConnector.remove_sync


def _shown(url: str) -> str:
    """An address without credentials; only its scheme, or nothing of it, where they cannot be told from the rest."""
    try:
        return str(StoreURL.parse(url))
    except ValueError:
        scheme, separator, _ = url.partition("://")
        return f"{scheme}://" if separator else "an address without ://"
