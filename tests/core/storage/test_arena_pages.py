import ctypes
import logging
from collections.abc import Iterator

import pytest
from tests.cache_stage import until

from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena
from lmcache_core.storage.arena_pages import ArenaPages
from lmcache_core.threads import PeriodicThreadRegistry

MIB = 1 << 20
AHEAD_BYTES = 4 * MIB


class Memory:
    """An arena of 32 MiB whose pages come 4 MiB ahead."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.threads = PeriodicThreadRegistry()
        self.pages = ArenaPages(arena, self.threads, AHEAD_BYTES)

    def resident(self, offset: int) -> bool:
        """Whether the system has a page for this byte, as mincore(2) says."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.arena.buffer, offset))
        told = (ctypes.c_ubyte * 1)()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(ALIGNMENT_BYTES), told) == 0
        return bool(told[0] & 1)

    def comes_to(self, ready_bytes: int) -> bool:
        return until(lambda: self.pages.ready_bytes >= ready_bytes)

    def message(self) -> object:
        (status,) = self.threads.statuses()
        return status["last_summary"]["message"]


@pytest.fixture
def memory() -> Iterator[Memory]:
    found = Memory(Arena(32 * MIB))
    yield found
    found.pages.stop()


def test_nothing_has_a_page_before_it_starts(memory: Memory) -> None:
    assert not memory.resident(0)


def test_the_first_blocks_find_their_pages(memory: Memory) -> None:
    memory.pages.start()

    assert memory.comes_to(AHEAD_BYTES)
    assert [memory.resident(offset) for offset in (0, AHEAD_BYTES - ALIGNMENT_BYTES)] == [True, True]


def test_what_no_block_comes_near_has_none(memory: Memory) -> None:
    memory.pages.start()
    memory.comes_to(AHEAD_BYTES)

    assert not memory.resident(16 * MIB)


def test_blocks_bring_the_pages_of_the_next_ones(memory: Memory) -> None:
    memory.pages.start()
    memory.comes_to(AHEAD_BYTES)
    memory.arena.allocate(3 * MIB)

    assert memory.comes_to(3 * MIB + AHEAD_BYTES)
    assert memory.resident(3 * MIB + AHEAD_BYTES - ALIGNMENT_BYTES)


def test_a_block_that_overtakes_it_is_no_error(memory: Memory) -> None:
    memory.arena.allocate(20 * MIB)
    memory.pages.start()

    assert memory.comes_to(24 * MIB)


def test_it_ends_where_the_arena_ends(memory: Memory) -> None:
    memory.arena.allocate(32 * MIB)
    memory.pages.start()

    assert memory.comes_to(32 * MIB)
    assert until(lambda: memory.message() == "33554432 of 33554432 bytes are ready")


def test_what_blocks_hold_stays(memory: Memory) -> None:
    block = memory.arena.allocate(MIB)
    assert block is not None
    block.view[:] = b"x" * MIB
    memory.pages.start()
    memory.comes_to(AHEAD_BYTES)

    assert block.view == b"x" * MIB


def test_freed_blocks_that_are_taken_again_ask_for_no_more(memory: Memory) -> None:
    memory.pages.start()
    memory.comes_to(AHEAD_BYTES)
    for _ in range(100):
        block = memory.arena.allocate(MIB)
        assert block is not None
        memory.arena.release([block])

    assert memory.pages.ready_bytes == AHEAD_BYTES


def test_a_system_that_gives_no_pages_is_said_once_and_tried_no_more(
    memory: Memory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_offset: int, _size_bytes: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(memory.arena, "touch", refuse)
    memory.pages.start()
    sentence = (
        "the system gives no pages ahead beyond 0 of 33554432 bytes (Cannot allocate memory); "
        "the first copy into each page is slower"
    )
    until(lambda: memory.threads.statuses()[0]["total_runs"] == 1)
    memory.pages.wake()
    until(lambda: memory.threads.statuses()[0]["total_runs"] == 2)

    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"arena-pages-thread: {sentence}"
    ]
    assert memory.message() == sentence
