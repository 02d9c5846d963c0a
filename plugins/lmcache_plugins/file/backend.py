"""The store behind ``file://``: a folder that several instances and hosts may share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from lmcache_core import ChunkKey, Frame, LoadResult, StorageBackend
from lmcache_plugins.file.chunkfile import (
    check_deadline,
    failure,
    has_chunk,
    has_length,
    read_chunk,
)
from lmcache_plugins.file.folder import StoreFolder

_SWEEP_INTERVAL_S = 3600.0


class FileBackend(StorageBackend):
    """Keeps one file a chunk, in a folder that anybody may share; nothing is evicted.

    Each chunk appears by a rename, whole or not at all. Calls end at their deadline as long as the
    file system answers; a hanging network file system holds the calling thread.

    Args:
        root: Absolute path of the folder; made at the first call if its parent exists.
        name: Of the tier; for messages.
        fsync: Force each chunk to the disk before it becomes visible.
        stale_temporary_s: Age of a half-written file from which on it is removed.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        root: str,
        *,
        name: str,
        fsync: bool = False,
        stale_temporary_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = StoreFolder(root, name=name, kind="file", private=False)
        self._name = name
        self._fsync = fsync
        self._stale_temporary_s = stale_temporary_s
        self._clock = clock
        self._next_sweep_s = clock()

    def contains(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Count the leading keys that have a file."""
        self._folder.check()
        for count, key in enumerate(keys):
            check_deadline(deadline, name=self._name, doing="looking for chunks")
            path = self._folder.path(key)
            try:
                if not has_chunk(path):
                    return count
            except OSError as error:
                if count:
                    return count  # what is known; a load will say what is wrong with this one
                raise failure(error, name=self._name, doing="looking for", path=path) from error
        return len(keys)

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, deadline: float) -> list[LoadResult]:
        """Read files straight into the buffers."""
        self._folder.check()
        results: list[LoadResult] = []
        error: OSError | None = None
        for key, out in zip(keys, outs, strict=True):
            check_deadline(deadline, name=self._name, doing="loading chunks")
            try:
                results.append(read_chunk(self._folder.path(key), out))
            except OSError as caught:
                error = caught
                results.append(LoadResult.FAILED)
        if LoadResult.MISS in results:
            self._folder.check()  # a folder that went away meanwhile is no miss
        if error is not None and all(result is LoadResult.FAILED for result in results):
            raise failure(error, name=self._name, doing="loading", path=str(error.filename or self._folder.root))
        return results

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, deadline: float) -> None:
        """Write files beside and rename them; chunks of the same length that are there stay."""
        self._folder.check()
        for key, frame in items:
            check_deadline(deadline, name=self._name, doing="storing chunks")
            path = self._folder.path(key)
            if has_length(path, len(frame)):
                continue
            try:
                self._folder.publish(key, frame, fsync=self._fsync, deadline=deadline)
            except OSError as error:
                raise failure(error, name=self._name, doing="storing", path=path) from error

    def delete(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Remove files."""
        self._folder.check()
        removed = 0
        for key in keys:
            check_deadline(deadline, name=self._name, doing="deleting chunks")
            path = self._folder.path(key)
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise failure(error, name=self._name, doing="deleting", path=path) from error
            removed += 1
        return removed

    def ping(self, *, deadline: float) -> None:
        """Read the marker file; now and then sweep what dead writers left."""
        check_deadline(deadline, name=self._name, doing="pinging")
        self._folder.ask()
        if self._clock() >= self._next_sweep_s:
            self._next_sweep_s = self._clock() + _SWEEP_INTERVAL_S
            self._folder.sweep(age_s=self._stale_temporary_s, deadline=deadline)

    def close(self) -> None:
        """Nothing is held between calls."""
