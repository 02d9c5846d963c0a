from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena, Block

CAPACITY_BYTES = 16 * ALIGNMENT_BYTES


def test_capacity_is_whole_pages() -> None:
    assert Arena(ALIGNMENT_BYTES * 2 + 1).capacity_bytes == ALIGNMENT_BYTES * 2


def test_less_than_a_page_is_refused() -> None:
    with pytest.raises(MemoryError) as caught:
        Arena(100)

    assert str(caught.value) == "arena: 100 bytes is less than one page of 4096 bytes"


def test_more_than_the_address_space_is_refused() -> None:
    with pytest.raises(MemoryError, match="arena: the system refused 1152921504606846976 bytes of memory"):
        Arena(1 << 60)


def test_block_view_is_writable_and_as_long_as_asked() -> None:
    block = Arena(CAPACITY_BYTES).allocate(1000)

    assert block is not None
    block.view[:] = b"x" * 1000
    assert bytes(block.view) == b"x" * 1000


def test_full_arena_gives_none() -> None:
    arena = Arena(CAPACITY_BYTES)
    arena.allocate(CAPACITY_BYTES)

    assert arena.allocate(1) is None


def test_releasing_twice_is_a_bug_of_the_caller() -> None:
    arena = Arena(CAPACITY_BYTES)
    block = arena.allocate(1)
    assert block is not None
    arena.release((block,))

    with pytest.raises(RuntimeError) as caught:
        arena.release((block,))

    assert str(caught.value) == "arena: block at 0 is released more often than it was taken"


def test_retaining_a_freed_block_is_a_bug_of_the_caller() -> None:
    arena = Arena(CAPACITY_BYTES)
    block = arena.allocate(1)
    assert block is not None
    arena.release((block,))

    with pytest.raises(RuntimeError) as caught:
        arena.retain((block,))

    assert str(caught.value) == "arena: block at 0 is used after it was freed"


@given(st.permutations(range(16)))
def test_extents_merge_in_any_order_of_release(order: list[int]) -> None:
    arena = Arena(CAPACITY_BYTES)
    blocks = [block for _ in range(16) if (block := arena.allocate(ALIGNMENT_BYTES)) is not None]

    for place in order:
        arena.release((blocks[place],))

    assert arena.allocate(CAPACITY_BYTES) is not None


class ArenaMachine(RuleBasedStateMachine):
    """Free and used bytes always make the capacity, and no two blocks overlap."""

    blocks = Bundle("blocks")

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(CAPACITY_BYTES)
        self.references: dict[Block, int] = {}

    @rule(target=blocks, frame_bytes=st.integers(1, 5 * ALIGNMENT_BYTES))
    def allocate(self, frame_bytes: int) -> Block | None:
        block = self.arena.allocate(frame_bytes)
        if block is not None:
            self.references[block] = 1
        return block

    @rule(target=blocks, block=blocks)
    def retain(self, block: Block | None) -> Block | None:
        if block is None or block not in self.references:
            return None
        self.arena.retain((block,))
        self.references[block] += 1
        return block

    @rule(block=consumes(blocks))
    def release(self, block: Block | None) -> None:
        if block is None or block not in self.references:
            return
        self.arena.release((block,))
        self.references[block] -= 1
        if not self.references[block]:
            del self.references[block]

    @invariant()
    def exact(self) -> None:
        assert self.arena.used_bytes + self.arena.free_bytes == self.arena.capacity_bytes
        assert self.arena.blocks == len(self.references)

    @invariant()
    def disjoint(self) -> None:
        ends = sorted((block.offset, block.offset + block.frame_bytes) for block in self.references)
        assert all(first[1] <= second[0] for first, second in pairwise(ends))


TestArena = ArenaMachine.TestCase


def test_reach_is_where_the_furthest_block_ever_ended() -> None:
    arena = Arena(CAPACITY_BYTES)
    first, second = arena.allocate(ALIGNMENT_BYTES), arena.allocate(ALIGNMENT_BYTES)
    assert first is not None
    assert second is not None
    arena.release([second])

    assert arena.reach_bytes == 2 * ALIGNMENT_BYTES


def test_a_mark_is_told_of_once_when_a_block_ends_beyond_it() -> None:
    arena, told = Arena(CAPACITY_BYTES), []
    arena.call_beyond(ALIGNMENT_BYTES, lambda: told.append(arena.reach_bytes))
    for _ in range(3):
        arena.allocate(ALIGNMENT_BYTES)

    assert told == [2 * ALIGNMENT_BYTES]


def test_a_mark_that_is_behind_a_block_already_is_told_of_at_once() -> None:
    arena, told = Arena(CAPACITY_BYTES), []
    arena.allocate(2 * ALIGNMENT_BYTES)
    arena.call_beyond(ALIGNMENT_BYTES, lambda: told.append("beyond"))

    assert told == ["beyond"]


def test_what_the_system_refuses_to_touch_is_its_error() -> None:
    arena = Arena(CAPACITY_BYTES)
    with pytest.raises(OSError, match="Invalid argument"):
        arena.touch(1, ALIGNMENT_BYTES)
