"""The one preallocated region of CPU memory that all blocks live in."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence

from lmcache_core.contracts.key import KeyNamespace

ALIGNMENT_BYTES = 4096
"""Blocks start on a page, so that files, sockets and copies touch whole pages."""


_POPULATE_BYTES = 64 << 20

_MADV_POPULATE_WRITE = 23
"""Linux 5.14's, from its ``mman-common.h``; Python 3.11's mmap does not name it. Content stays as it is."""

_SIZE_IS_FINAL = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Who cuts the memory short would kill every process that touches it."""


class Account:
    """Counts what some blocks take.

    Attributes:
        used_bytes: In blocks, rounding included. Only `Arena` changes it.
    """

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class Block:
    """A frame's bytes in the arena, shared by counted references.

    The index of tier 0 holds one reference, each lease one more; the last to let go frees the block.
    Only `Arena` changes the count.

    Attributes:
        offset: Of the first byte in the arena.
        frame_bytes: Length in use; the arena may round it up.
        sealed: Whether the frame's header and checksum have been written.
        kept_since_s: When tier 0 made it findable, monotonic seconds; 0 before.
        namespace: Of the chunk that tier 0 made findable in it; None before.
        account: That it is counted in until it is freed.
    """

    __slots__ = ("_arena", "account", "frame_bytes", "kept_since_s", "namespace", "offset", "references", "sealed")

    def __init__(self, arena: Arena, offset: int, frame_bytes: int, account: Account) -> None:
        self._arena = arena
        self.account = account
        self.offset = offset
        self.frame_bytes = frame_bytes
        self.references = 1
        self.sealed = False
        self.kept_since_s = 0.0
        self.namespace: KeyNamespace | None = None

    @property
    def size_bytes(self) -> int:
        """What it takes of the arena."""
        return whole_pages(self.frame_bytes)

    @property
    def view(self) -> memoryview:
        """The bytes, writable. Valid as long as the caller holds a reference."""
        return self._arena.buffer[self.offset : self.offset + self.frame_bytes]


class Arena:
    """Gives out blocks of one memory map and takes them back, exactly.

    First fit by address over a sorted list of free extents that merge with their neighbours; with
    blocks of one size, as one model has, the first extent always fits. Safe from any thread.

    The map is never closed by hand: tensors made from a block would point into nothing.

    Args:
        capacity_bytes: Rounded down to whole pages; at least one page.
        shared: Whether other processes may map it, by `fd`. The memory has no name: it is freed with the
            last process that maps it, however that ends.

    Attributes:
        fd: Of the memory, for the life of the process; -1 where it is not shared.

    Raises:
        MemoryError: The system does not give that much address space.
    """

    def __init__(self, capacity_bytes: int, *, shared: bool = False) -> None:
        self.capacity_bytes = capacity_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        if self.capacity_bytes < ALIGNMENT_BYTES:
            raise MemoryError(f"arena: {capacity_bytes} bytes is less than one page of {ALIGNMENT_BYTES} bytes")
        self.fd = -1
        try:
            if shared:
                self.fd = os.memfd_create("lmcache-core-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                os.ftruncate(self.fd, self.capacity_bytes)
                fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SIZE_IS_FINAL)
            region = mmap.mmap(self.fd, self.capacity_bytes)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryError(f"arena: the system refused {self.capacity_bytes} bytes of memory: {error}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            region.madvise(mmap.MADV_HUGEPAGE)  # first touch of small pages costs more than the copy itself
        self.buffer = memoryview(region)
        self._lock = threading.Lock()
        self._extents: list[tuple[int, int]] = [(0, self.capacity_bytes)]  # (offset, bytes), sorted, never adjacent
        self._used_bytes = 0
        self._blocks = 0
        self._anyone = Account()
        self._reach_bytes = 0
        self._mark_bytes = self.capacity_bytes
        self._on_mark: Callable[[], None] | None = None

    def populate(self, stopped: Callable[[], bool]) -> None:
        """Back shared memory with pages, slice by slice, so that no copy pays for their first touch.

        Raises:
            OSError: The system has not that much memory.
        """
        for start in range(0, self.capacity_bytes, _POPULATE_BYTES):
            if stopped():
                return
            os.posix_fallocate(self.fd, start, min(_POPULATE_BYTES, self.capacity_bytes - start))

    def touch(self, offset: int, size_bytes: int) -> None:
        """Back private memory with pages; what is written there stays. Lets other threads run meanwhile.

        Args:
            offset: Of the first byte, on a page.
            size_bytes: Whole pages within the capacity.

        Raises:
            OSError: The system has not that much memory, or is older than Linux 5.14.
        """
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer, offset))
        # Not mmap's own madvise, which holds Python's lock: 2 ms for each huge page.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size_bytes), _MADV_POPULATE_WRITE):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    @property
    def reach_bytes(self) -> int:
        """Where the furthest block that there ever was ends."""
        return self._reach_bytes

    def call_beyond(self, mark_bytes: int, call: Callable[[], None]) -> None:
        """Call once, as soon as a block ends beyond the mark; at once where one has. Replaces what waits.

        Args:
            mark_bytes: From the beginning.
            call: Returns at once and takes no lock of the arena.
        """
        with self._lock:
            self._mark_bytes, self._on_mark = mark_bytes, call
            self._note_reach(self._reach_bytes)

    @property
    def used_bytes(self) -> int:
        """Bytes in blocks, rounding included."""
        return self._used_bytes

    @property
    def free_bytes(self) -> int:
        """Sum of the free extents, counted afresh: with `used_bytes` it must make the capacity."""
        with self._lock:
            return sum(size for _, size in self._extents)

    def balance(self) -> tuple[int, int]:
        """Give used and free bytes as of one moment; together they must make the capacity."""
        with self._lock:
            return self._used_bytes, sum(size for _, size in self._extents)

    @property
    def blocks(self) -> int:
        """Blocks given out and not yet freed."""
        return self._blocks

    def extents(self) -> list[tuple[int, int]]:
        """Give offset and bytes of each free extent, by address."""
        with self._lock:
            return list(self._extents)

    def fits(self, frame_bytes: int) -> bool:
        """Whether `allocate` would give a block."""
        need = whole_pages(frame_bytes)
        with self._lock:
            return any(size >= need for _, size in self._extents)

    def allocate(self, frame_bytes: int, account: Account | None = None) -> Block | None:
        """Give a block with one reference, or None when no extent is large enough. Content is arbitrary.

        Args:
            frame_bytes: Its length.
            account: What it is counted in.
        """
        need = whole_pages(frame_bytes)
        with self._lock:
            for place, (offset, size) in enumerate(self._extents):
                if size >= need:
                    if size == need:
                        del self._extents[place]
                    else:
                        self._extents[place] = (offset + need, size - need)
                    self._used_bytes += need
                    self._blocks += 1
                    if offset + need > self._reach_bytes:
                        self._note_reach(offset + need)
                    block = Block(self, offset, frame_bytes, account or self._anyone)
                    block.account.used_bytes += need
                    return block
        return None

    def retain(self, blocks: Sequence[Block]) -> None:
        """Add one reference to each block, or to none of them.

        Raises:
            RuntimeError: A block was freed already; a bug of the caller.
        """
        with self._lock:
            for block in blocks:
                if block.references < 1:
                    self._take_back(blocks, block)
                    raise RuntimeError(f"arena: block at {block.offset} is used after it was freed")
                block.references += 1

    def release(self, blocks: Iterable[Block]) -> None:
        """Drop one reference of each block and free those that have none left.

        Raises:
            RuntimeError: A block was freed already; a bug of the caller.
        """
        with self._lock:
            for block in blocks:
                if block.references < 1:
                    raise RuntimeError(f"arena: block at {block.offset} is released more often than it was taken")
                block.references -= 1
                if block.references == 0:
                    size = block.size_bytes
                    block.account.used_bytes -= size
                    self._free(block.offset, size)

    def _note_reach(self, end: int) -> None:
        self._reach_bytes = end
        if end > self._mark_bytes and self._on_mark is not None:
            call, self._on_mark = self._on_mark, None
            call()

    @staticmethod
    def _take_back(blocks: Sequence[Block], stop: Block) -> None:
        for block in blocks:
            if block is stop:
                return
            block.references -= 1

    def _free(self, offset: int, size: int) -> None:
        self._used_bytes -= size
        self._blocks -= 1
        place = bisect_left(self._extents, (offset, 0))
        if place < len(self._extents) and self._extents[place][0] == offset + size:
            size += self._extents.pop(place)[1]
        if place > 0 and sum(self._extents[place - 1]) == offset:
            offset, before = self._extents.pop(place - 1)
            size += before
        insort(self._extents, (offset, size))


def whole_pages(size: int) -> int:
    """Round up to what a block of so many bytes takes."""
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
