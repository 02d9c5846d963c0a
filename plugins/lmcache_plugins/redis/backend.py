"""The store behind ``redis://`` and its siblings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from lmcache_core import (
    BackendError,
    BackendTimeoutError,
    BackendUsage,
    ChunkKey,
    Frame,
    LoadResult,
    StorageBackend,
)
from lmcache_plugins.redis.address import RedisAddress
from lmcache_plugins.redis.loading import load
from lmcache_plugins.redis.pool import WirePool
from lmcache_plugins.redis.record import HEAD_BYTES, VALUE_BYTES, Head, KeyNames, segment_count
from lmcache_plugins.redis.refusal import RefusedError, refused
from lmcache_plugins.redis.resp import ConnectionLostError, ProtocolError, Refusal, command
from lmcache_plugins.redis.session import (
    ServerInfo,
    log_notices,
    notices_of,
    open_session,
    read_info,
    refuse_cluster,
)
from lmcache_plugins.redis.storing import store
from lmcache_plugins.redis.wire import Wire, count, leading_ones

T = TypeVar("T")


class RedisBackend(StorageBackend):
    """Keeps chunks in a Redis or Valkey server, as values just below 1 MiB.

    Each call uses one connection; calls at once use as many. A call on a connection that turns out
    dead is made once more on a new one: every call may be repeated.

    Args:
        address: Where the server is.
        name: Of the tier; for messages.
        connections: Idle connections to keep.
        key_prefix: First part of every key.
        ttl_s: Seconds until a chunk expires, 0 for never.
        value_bytes: Most bytes of one value; the same for all that share chunks.
    """

    def __init__(
        self,
        address: RedisAddress,
        *,
        name: str,
        connections: int = 4,
        key_prefix: str = "lmcache",
        ttl_s: int = 0,
        value_bytes: int = VALUE_BYTES,
    ) -> None:
        self._address = address
        self._who = f"{name} at {address.shown}"
        self._names = KeyNames(key_prefix)
        self._ttl_s = ttl_s
        self._value_bytes = value_bytes
        self._pool = WirePool(connections)
        self._usage = BackendUsage()
        self._notices: tuple[str, ...] = ()
        self._examined = False
        self._examining = threading.Lock()

    def contains(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Count the leading keys that have a head; one round trip."""

        def ask(wire: Wire) -> int:
            wire.send([self._names.exists(keys)], replies=len(keys))
            return leading_ones(wire, len(keys))

        return self._call(ask, deadline)

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, deadline: float) -> list[LoadResult]:
        """Read values straight into the buffers; one round trip, several where they are many."""
        return self._call(lambda wire: load(wire, self._names, keys, outs, self._value_bytes), deadline)

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, deadline: float) -> None:
        """Send what is not there; the key that makes a chunk visible goes last."""
        self._call(lambda wire: store(wire, self._names, items, self._value_bytes, self._ttl_s), deadline)

    def delete(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Remove heads first, then segments."""

        def ask(wire: Wire) -> int:
            heads = [self._names.head(key) for key in keys]
            last = b"%d" % (HEAD_BYTES - 1)
            wire.send([command(b"GETRANGE", head, b"0", last) for head in heads], replies=len(keys))
            lengths = [self._segments_of(wire.reply(), key) for key in keys]
            requests = [command(b"UNLINK", head) for head in heads]
            for key, segments in zip(keys, lengths, strict=True):
                if segments:
                    requests.append(command(b"UNLINK", *self._names.all(key, segments)[1:]))
            wire.send(requests, replies=len(requests))
            return sum([count(wire) for _ in requests][: len(heads)])

        return self._call(ask, deadline)

    def ping(self, *, deadline: float) -> None:
        """Send PING; look at the server's memory on the way."""

        def ask(wire: Wire) -> None:
            wire.send([command(b"PING")], replies=1)
            reply = wire.reply()
            if isinstance(reply, Refusal):
                raise RefusedError(reply)
            self._learn(read_info(wire, b"memory"))

        self._call(ask, deadline)

    def usage(self) -> BackendUsage:
        """Tell the whole server's memory as of the last ping."""
        return self._usage

    def notices(self) -> Sequence[str]:
        """Tell of an eviction policy that will surprise later, as of the last ping."""
        return self._notices

    def close(self) -> None:
        """Close idle connections; those in use close when their calls end."""
        self._pool.close()

    def _segments_of(self, reply: int | bytes | Refusal | None, key: ChunkKey) -> int:
        """Tell by the chunk's head, and without a good one by the length that its frame must have."""
        head = Head.unpack(reply) if isinstance(reply, bytes) else None
        if head is not None and head.value_bytes == self._value_bytes:
            return head.segments
        return segment_count(key.namespace.frame_bytes, self._value_bytes)

    def _call(self, ask: Callable[[Wire], T], deadline: float) -> T:
        """Run a call on an idle connection, or on a new one."""
        if self._pool.closed:
            raise BackendError(f"{self._who}: the store is closed")
        if time.monotonic() >= deadline:
            raise BackendTimeoutError(f"{self._who}: no time left to ask")
        wire = self._pool.take()
        if wire is not None:
            try:
                return self._run(ask, wire, deadline)
            except (OSError, ConnectionLostError):
                pass  # it died while it was idle; a new one tells more
        wire = open_session(self._address, who=self._who, deadline=deadline)
        try:
            return self._run(ask, wire, deadline)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise BackendError(f"{self._who}: the connection broke: {reason}") from error
        except ConnectionLostError as error:
            raise BackendError(f"{self._who}: {error}") from error

    def _run(self, ask: Callable[[Wire], T], wire: Wire, deadline: float) -> T:
        wire.deadline = deadline
        clean = True
        try:
            if not self._examined:
                self._examine(wire)
            return ask(wire)
        except RefusedError as error:
            raise refused(error.refusal, who=self._who, secret=self._address.password) from error
        except TimeoutError as error:
            clean = False
            raise BackendTimeoutError(f"{self._who}: no answer before the deadline") from error
        except ProtocolError as error:
            clean = False
            raise BackendError(f"{self._who}: got {error}") from error
        except BaseException:
            clean = False
            raise
        finally:
            if clean and wire.pending == 0:
                self._pool.give(wire)
            else:
                wire.close()
                self._pool.clear()

    def _examine(self, wire: Wire) -> None:
        info = read_info(wire, b"memory", b"cluster")
        refuse_cluster(info, who=self._who)
        with self._examining:
            first, self._examined = not self._examined, True
        if first:
            self._learn(info)
            log_notices(info, self._notices, who=self._who)

    def _learn(self, info: ServerInfo) -> None:
        self._usage = info.usage
        self._notices = notices_of(info, ttl_s=self._ttl_s)
