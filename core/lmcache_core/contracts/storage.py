"""A kind of store: what a storage plugin declares and implements."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.contracts.url import StoreURL

Frame: TypeAlias = memoryview
"""A chunk as it travels: fixed header and payload in one contiguous buffer. Opaque to a store."""


class LoadResult(enum.Enum):
    """What became of one key of a load."""

    HIT = "hit"
    """All of the buffer is filled."""
    MISS = "miss"
    """Not in the store; the buffer is untouched. Or no longer all of it is: then it means nothing."""
    CORRUPT = "corrupt"
    """In the store, but short, long or damaged; the buffer's content means nothing."""
    FAILED = "failed"
    """The store answered, but could not be asked for this key; the buffer's content means nothing.

    Not a miss: it counts as an error. Where no key could be asked, raise BackendError instead.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendUsage:
    """How full a store is.

    Attributes:
        bytes_used: -1 where the store cannot tell.
        capacity_bytes: 0 where there is no bound.
    """

    bytes_used: int = -1
    capacity_bytes: int = 0


class StorageBackend(ABC):
    """Keeps frames of chunks. Blocking; called from several of the guard's worker threads at once.

    Every call has a deadline, a `time.monotonic()` value after which nobody waits any more: set
    socket timeouts from it, so that the worker comes free as well.
    """

    @abstractmethod
    def contains(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Count the leading keys that are completely in the store; one round trip.

        Raises:
            BackendError: The store could not be asked.
        """

    @abstractmethod
    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, deadline: float) -> list[LoadResult]:
        """Copy chunks into caller-owned buffers.

        Args:
            keys: Which chunks, at least one.
            outs: As many writable, contiguous buffers of bytes, each exactly one frame long.
            deadline: After it nobody waits any more.

        Returns:
            Per key, HIT with all of its buffer filled, MISS with it untouched, CORRUPT or FAILED.

        Raises:
            BackendError: The store as a whole could not be asked. Never report this as MISS: a
                miss is normal, an error moves the health. One bad key among good ones is FAILED,
                so that its siblings are not lost.
        """

    @abstractmethod
    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, deadline: float) -> None:
        """Keep frames; each becomes visible whole or not at all. Storing a present key is no error.

        A chunk that another writer is storing at the moment may be left to it.

        Raises:
            BackendFullError: There is no room.
            BackendError: The store could not be asked.
        """

    @abstractmethod
    def delete(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Remove chunks and say how many were there.

        Raises:
            BackendError: The store could not be asked.
        """

    @abstractmethod
    def ping(self, *, deadline: float) -> None:
        """Ask the store itself, not a local flag, whether it answers; connect first if need be.

        Raises:
            BackendError: It does not.
        """

    def usage(self) -> BackendUsage:
        """Tell how full the store is; must not block for long."""
        return BackendUsage()

    def evicted_chunks(self) -> int:
        """Count the chunks that made room for others since start; 0 where the store cannot tell. Must not block."""
        return 0

    def notices(self) -> Sequence[str]:
        """Say what will surprise later although the store works now, one sentence each; must not block.

        Such as an eviction policy that refuses chunks once the store is full. Asked after each ping.
        """
        return ()

    def clear(self, *, deadline: float) -> int | None:
        """Remove every chunk of a store that belongs to this instance alone; give how many.

        None, as here, means that others share the store, so that clearing is its owner's business.

        Raises:
            BackendError: The store could not be asked.
        """
        del deadline
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of sockets and files. Called once; must not raise for a store that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """What a store may need to know when it is built.

    Attributes:
        name: The tier's name, such as ``RemoteBackend``; for messages.
        capacity_bytes: Most bytes to keep, 0 for no bound.
        connections: Calls the guard makes at once, at least 1.
    """

    name: str
    capacity_bytes: int = 0
    connections: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageBackendSpec:
    """One kind of store, as a plugin declares it.

    Attributes:
        schemes: URL schemes it answers to, such as ``("redis", "rediss")``.
        options: Model of the store's own table, or None. One validated instance reaches `build`.
        build: Makes the backend. Must not connect; `ping` does that first.
        requires: Modules that must be importable, such as ``("redis",)``.
        extra: What to install when one is not, such as ``lmcache-core[redis]``.
    """

    schemes: tuple[str, ...]
    options: type[PluginSettings] | None
    build: Callable[[StoreURL, PluginSettings | None, BackendContext], StorageBackend]
    requires: tuple[str, ...] = ()
    extra: str = ""

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the plugin's line."""
        if not self.schemes:
            raise ValueError("schemes must be a non-empty tuple of names")
        for scheme in self.schemes:
            if not StoreURL.is_scheme(scheme):
                raise ValueError(f"scheme {scheme!r} must be lower-case letters, digits, '+', '-' or '.'")
