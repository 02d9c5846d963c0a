"""The server's arena, mapped into this process."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence

from lmcache_core.client.failures import ServerConfusedError

_SLICE_BYTES = 1 << 20
"""Mapped at a time: `mmap.madvise` holds the interpreter's lock, here for well under a millisecond."""

_STAT_BLOCK_BYTES = 512
_MADV_POPULATE_WRITE = 23  # linux/mman.h, since 5.14; the module mmap has no name for it


class SharedArena:
    """Memory that the server gives out in blocks. Any thread; `map_more` one at a time.

    Never closed by hand, as tensors made from a view would point into nothing: the map goes with the
    last reference to it or to a view of it.

    Args:
        descriptor: Of the shared memory; owned from now on.
        size_bytes: As the server said it.

    Raises:
        ServerConfusedError: The memory is smaller, so that touching it would kill this process.
        OSError: The system does not give the address space.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        found = os.fstat(descriptor).st_size
        if size_bytes < 1 or found < size_bytes:
            raise ServerConfusedError(f"the cache server's arena has {found} bytes where it said {size_bytes}")
        self.size_bytes = size_bytes
        self._map = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._view = memoryview(self._map)
        self._mapped_bytes = 0

    def __del__(self) -> None:
        os.close(self._descriptor)

    def views(self, offsets: Sequence[int], frame_bytes: int, skip_bytes: int) -> list[memoryview]:
        """Give writable views of some blocks, without so many bytes at the head of each.

        Raises:
            ServerConfusedError: A block is not inside the arena.
        """
        if offsets and not 0 <= min(offsets) <= max(offsets) <= self.size_bytes - frame_bytes:
            raise ServerConfusedError(f"the cache server gave a block outside its arena of {self.size_bytes} bytes")
        view = self._view
        return [view[offset + skip_bytes : offset + frame_bytes] for offset in offsets]

    def map_more(self, limit_s: float) -> bool:
        """Fill page tables for so long, so that the first copy into a block does not pay for it.

        Only of the part that the server has given memory to: touching the rest would allocate it.

        Returns:
            Whether there is more to do at once.
        """
        end = time.monotonic() + limit_s
        start, stop = self._mapped_bytes, self._backed_until(self._mapped_bytes)
        try:
            while start < stop and time.monotonic() < end:
                size = min(_SLICE_BYTES, stop - start)
                self._map.madvise(_MADV_POPULATE_WRITE, start, size)
                start += size
        except (OSError, ValueError):  # an old kernel: the first copies pay
            start = self.size_bytes
        self._mapped_bytes = start
        return start < stop

    def _backed_until(self, start: int) -> int:
        """End of the memory that the server's arena has from this byte on without a hole."""
        if start >= self.size_bytes:
            return start
        if os.fstat(self._descriptor).st_blocks * _STAT_BLOCK_BYTES >= self.size_bytes:
            return self.size_bytes
        try:
            if os.lseek(self._descriptor, start, os.SEEK_DATA) != start:
                return start
            return min(os.lseek(self._descriptor, start, os.SEEK_HOLE), self.size_bytes)
        except OSError:  # nothing but a hole
            return start
