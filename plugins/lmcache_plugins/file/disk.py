"""The store behind ``disk://``: a bounded folder that belongs to one instance."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

from lmcache_core import (
    BackendError,
    BackendFullError,
    BackendTimeoutError,
    BackendUsage,
    ChunkKey,
    Frame,
    LoadResult,
    StorageBackend,
)
from lmcache_plugins.file.chunkfile import check_deadline, failure, read_chunk
from lmcache_plugins.file.folder import StoreFolder
from lmcache_plugins.file.index import ChunkIndex, Entry
from lmcache_plugins.file.ownership import Ownership

_SCAN_STEP = 256  # files between two looks at the clock
_CLOSE_WAIT_S = 1.0


class DiskBackend(StorageBackend):
    """Keeps one file a chunk, least recently used out first; never more than the bound, not even for a moment.

    The index is in memory. It is rebuilt from the folder at the first call; where that takes longer
    than the call's deadline, the next call goes on where it stopped.

    Args:
        root: Absolute path of the folder; made at the first call if its parent exists.
        name: Of the tier; for messages.
        capacity_bytes: Most bytes of all files together, above 0.
        fsync: Force each chunk to the disk before it becomes visible.
    """

    def __init__(self, root: str, *, name: str, capacity_bytes: int, fsync: bool = False) -> None:
        self._folder = StoreFolder(root, name=name, kind="disk", private=True)
        self._name = name
        self._capacity_bytes = capacity_bytes
        self._fsync = fsync
        self._changed = threading.Condition()  # guards the five below
        self._index = ChunkIndex()
        self._held_bytes = 0  # of files being written or removed
        self._busy: set[bytes] = set()  # their digests
        self._closed = False
        self._evicted = 0  # since start
        self._opening = threading.Lock()  # guards the five below
        self._generation = 0  # of the folder, as the index knows it
        self._opening_generation = 0  # of the folder, as `_scan` reads it
        self._ownership: Ownership | None = None
        self._scan: Iterator[tuple[str, str, int, float]] | None = None
        self._found: list[tuple[float, Entry]] = []

    def contains(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Count the leading keys in the index."""
        self._prepare(deadline)
        with self._changed:
            for count, key in enumerate(keys):
                if key.digest not in self._index:
                    return count
        return len(keys)

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, deadline: float) -> list[LoadResult]:
        """Read files straight into the buffers."""
        self._prepare(deadline)
        results: list[LoadResult] = []
        error: OSError | None = None
        for key, out in zip(keys, outs, strict=True):
            check_deadline(deadline, name=self._name, doing="loading chunks")
            try:
                results.append(self._load(key, out))
            except OSError as caught:
                error = caught
                results.append(LoadResult.FAILED)
        if error is not None and all(result is LoadResult.FAILED for result in results):
            raise failure(error, name=self._name, doing="loading", path=str(error.filename or self._folder.root))
        return results

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, deadline: float) -> None:
        """Write files beside and rename them, after making room; chunks that are there stay."""
        self._prepare(deadline)
        for key, frame in items:
            check_deadline(deadline, name=self._name, doing="storing chunks")
            if len(frame) > self._capacity_bytes:
                raise BackendFullError(
                    f"{self._name}: a chunk of {len(frame)} bytes is larger than the whole store at "
                    f"{self._folder.root} with {self._capacity_bytes}; raise its size"
                )
            self._store(key, frame, deadline)

    def delete(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Remove files."""
        self._prepare(deadline)
        removed = 0
        for key in keys:
            check_deadline(deadline, name=self._name, doing="deleting chunks")
            with self._changed:
                self._await_idle(key.digest, deadline)
                entry = self._index.get(key.digest)
                if entry is None:
                    continue
                self._take_out(entry)
            self._remove(entry)
            removed += 1
        return removed

    def clear(self, *, deadline: float) -> int:
        """Remove every chunk; the folder belongs to this instance alone."""
        self._prepare(deadline)
        removed = 0
        while True:
            check_deadline(deadline, name=self._name, doing="clearing")
            with self._changed:
                entry = self._index.oldest()
                if entry is None:
                    return removed
                self._take_out(entry)
            self._remove(entry)
            removed += 1

    def ping(self, *, deadline: float) -> None:
        """Read the marker file."""
        check_deadline(deadline, name=self._name, doing="pinging")
        self._prepare(deadline)
        self._folder.ask()

    def usage(self) -> BackendUsage:
        """Tell the bytes of all files, those being written included; -1 before the folder was read."""
        with self._changed:  # a file on its way from one to the other is in both, or in neither
            used_bytes = self._index.used_bytes + self._held_bytes if self._generation else -1
        return BackendUsage(bytes_used=used_bytes, capacity_bytes=self._capacity_bytes)

    def evicted_chunks(self) -> int:
        """Count the chunks that made room for others since start."""
        return self._evicted

    def close(self) -> None:
        """Let the next instance in; calls fail from now on."""
        with self._changed:
            self._closed = True
        if self._opening.acquire(timeout=_CLOSE_WAIT_S):  # a call that reads the folder gives up at its next step
            try:
                self._disown()
            finally:
                self._opening.release()

    def _load(self, key: ChunkKey, out: memoryview) -> LoadResult:
        with self._changed:
            entry = self._index.touch(key.digest)
        if entry is None:
            return LoadResult.MISS
        result = read_chunk(self._folder.path(key), out)
        if result is LoadResult.MISS:
            self._folder.check()  # a folder that went away meanwhile is no miss
            with self._changed:
                if self._index.get(key.digest) is entry:  # somebody else removed the file
                    self._index.remove(key.digest)
        return result

    def _store(self, key: ChunkKey, frame: Frame, deadline: float) -> None:
        entry = Entry(key.namespace.name, key.digest, len(frame))
        if not self._claim(entry, deadline):
            return
        held_bytes = 0
        stored = False
        try:
            self._make_room(len(frame), deadline)
            held_bytes = len(frame)
            self._folder.publish(key, frame, fsync=self._fsync, deadline=deadline)
            stored = True
        except OSError as error:
            raise failure(error, name=self._name, doing="storing", path=self._folder.path(key)) from error
        finally:
            with self._changed:
                if stored:
                    self._index.add(entry)
                self._held_bytes -= held_bytes
                self._busy.discard(entry.digest)
                self._changed.notify_all()

    def _claim(self, entry: Entry, deadline: float) -> bool:
        """Mark a chunk as being written; False where it is there already."""
        while True:
            with self._changed:
                self._await_idle(entry.digest, deadline)
                present = self._index.touch(entry.digest)
                if present is None:
                    self._busy.add(entry.digest)
                    return True
                if present.length_bytes == entry.length_bytes:
                    return False
                self._take_out(present)
            self._remove(present)

    def _make_room(self, length_bytes: int, deadline: float) -> None:
        """Reserve bytes for a new file; files go before it comes."""
        while True:
            with self._changed:
                if self._index.used_bytes + self._held_bytes + length_bytes <= self._capacity_bytes:
                    self._held_bytes += length_bytes
                    return
                oldest = self._index.oldest()
                if oldest is not None:
                    self._take_out(oldest)
                    self._evicted += 1
                elif not self._changed.wait(deadline - time.monotonic()):
                    check_deadline(deadline, name=self._name, doing="waiting for room")
            if oldest is not None:
                self._remove(oldest)

    def _take_out(self, entry: Entry) -> None:
        """Hide a chunk; its bytes count until `_remove` has removed the file. Needs the lock."""
        self._index.remove(entry.digest)
        self._held_bytes += entry.length_bytes
        self._busy.add(entry.digest)

    def _remove(self, entry: Entry) -> None:
        path = self._folder.path_of(entry.namespace, entry.digest.hex())
        removed = False
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            removed = True
        except OSError as error:
            raise failure(error, name=self._name, doing="removing", path=path) from error
        finally:
            with self._changed:
                if not removed:
                    self._index.restore(entry)
                self._held_bytes -= entry.length_bytes
                self._busy.discard(entry.digest)
                self._changed.notify_all()

    def _await_idle(self, digest: bytes, deadline: float) -> None:
        """Wait until nobody writes or removes a chunk. Needs the lock, gives it up meanwhile."""
        while digest in self._busy:
            if not self._changed.wait(deadline - time.monotonic()):
                check_deadline(deadline, name=self._name, doing="waiting for another writer of the chunk")

    def _prepare(self, deadline: float) -> None:
        """Own the folder and know its content; both anew after it was replaced."""
        check_deadline(deadline, name=self._name, doing="opening the folder")
        if self._closed:
            raise BackendError(f"{self._name}: the store at {self._folder.root} is closed")
        self._folder.check()
        if self._generation == self._folder.generation:
            return
        if not self._opening.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise BackendTimeoutError(f"{self._name}: still reading the folder {self._folder.root}")
        try:
            if self._generation != self._folder.generation:
                self._open(deadline)
        except OSError as error:
            self._scan = None
            raise failure(error, name=self._name, doing="reading the folder", path=self._folder.root) from error
        finally:
            self._opening.release()

    def _open(self, deadline: float) -> None:
        if self._opening_generation != self._folder.generation or self._scan is None:
            generation = self._folder.generation
            self._disown()
            self._ownership = Ownership(self._folder.marker, title_bytes=len(self._folder.title), name=self._name)
            self._folder.sweep(age_s=0.0, deadline=deadline)
            self._scan, self._found, self._opening_generation = self._folder.scan(), [], generation
        for count, (namespace, digest, length_bytes, changed_s) in enumerate(self._scan, start=1):
            self._found.append((changed_s, Entry(namespace, bytes.fromhex(digest), length_bytes)))
            if count % _SCAN_STEP == 0 and (self._closed or time.monotonic() >= deadline):
                raise BackendTimeoutError(
                    f"{self._name}: still reading the folder {self._folder.root}, {len(self._found)} chunks so far"
                )
        self._install(deadline)

    def _install(self, deadline: float) -> None:
        """Fill the index, oldest file first, and keep the bound, which may be lower than last time."""
        with self._changed:
            self._index.clear()
            for _, entry in sorted(self._found, key=lambda pair: pair[0]):
                self._index.add(entry)
        self._scan, self._found = None, []
        self._make_room(0, deadline)
        self._generation = self._opening_generation

    def _disown(self) -> None:
        if self._ownership is not None:
            self._ownership.release()
            self._ownership = None
