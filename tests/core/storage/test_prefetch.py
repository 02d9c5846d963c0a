"""Lookups that load, claims of chunks being filled, and promises that are given up."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.engine_calls import TOKENS, forget_local, some_kv, until
from tests.memory_store import CHUNK_TOKENS, Rig, refuse

from lmcache_core.storage.run import ChunkRun, Request
from lmcache_core.tokens.hashing import token_array

PROMPT = list(range(4 * CHUNK_TOKENS))
R = Request(b"r", "r")


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(chunks=16)
    yield made
    made.close()


def run_of(rig: Rig, tokens: list[int] = PROMPT) -> ChunkRun:
    return rig.format.run(token_array(tokens), "", "")


def soon() -> float:
    return time.monotonic() + 5.0


def fetched(rig: Rig, run: ChunkRun, request: Request, skip_chunks: int = 0) -> int:
    return sum(1 for _ in rig.storage.fetch(run, request, deadline=soon(), skip_chunks=skip_chunks))


# -- prefetch -----------------------------------------------------------------


def test_prefetch_loads_what_a_further_tier_has(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)

    found = rig.storage.prefetch(run_of(rig), R, deadline=soon())

    assert (found.l1_chunks, found.chunks, rig.local.chunks) == (0, 4, 4)


def test_prefetched_chunks_are_held_for_the_retrieve(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    run = run_of(rig)
    rig.storage.prefetch(run, R, deadline=soon())
    rig.local.clear()
    rig.stores[0].fault = refuse("contains", "load")

    assert fetched(rig, run, R) == 4


def test_prefetch_tells_what_was_in_tier_0_already(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    fetched(rig, run_of(rig, PROMPT[:8]), Request(b""))

    found = rig.storage.prefetch(run_of(rig), R, deadline=soon())

    assert (found.l1_chunks, found.chunks) == (2, 4)


def test_prefetch_that_finds_nothing_promises_nothing(rig: Rig) -> None:
    found = rig.storage.prefetch(run_of(rig), R, deadline=soon())

    assert (found.chunks, found.promise, rig.storage.promises) == (0, None, 0)


def test_prefetch_of_a_store_that_breaks_promises_what_is_here(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    fetched(rig, run_of(rig, PROMPT[:8]), Request(b""))
    rig.stores[0].fault = refuse("load")

    assert rig.storage.prefetch(run_of(rig), R, deadline=soon()).chunks == 2


def test_prefetch_leaves_no_reference_without_its_promise(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    rig.storage.prefetch(run_of(rig), R, deadline=soon())
    rig.storage.release(R)
    rig.local.clear()

    assert until(lambda: rig.arena.used_bytes == 0)


# -- residence ----------------------------------------------------------------


def test_a_prefix_in_tier_0_is_resident(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))

    assert rig.storage.is_resident(run_of(rig), None)


def test_a_prefix_that_a_store_may_have_is_not_resident(rig: Rig) -> None:
    rig.engine.store(PROMPT[:8], some_kv(8))

    assert not rig.storage.is_resident(run_of(rig), None)


def test_without_a_store_that_answers_everything_is_resident(rig: Rig) -> None:
    rig.stores[0].fault = refuse("contains")
    for number in range(10):
        rig.engine.lookup([number * 50 + place for place in range(8)])

    assert rig.tiers[0].is_open()
    assert rig.storage.is_resident(run_of(rig), None)


def test_a_fetch_whose_promise_is_in_memory_is_resident(rig: Rig) -> None:
    rig.engine.store(PROMPT[:8], some_kv(8))
    rig.storage.lookup(run_of(rig), R, deadline=soon())

    assert rig.storage.is_resident(run_of(rig), R)
    assert not rig.storage.is_resident(run_of(rig), None)


def test_a_fetch_whose_promise_lies_in_a_store_is_not_resident(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    rig.storage.lookup(run_of(rig), R, deadline=soon())

    assert not rig.storage.is_resident(run_of(rig), R)


# -- skipping and trimming -----------------------------------------------------


@pytest.mark.parametrize("skip_chunks", [0, 1, 3, 4])
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("promised", [True, False])
def test_a_fetch_gives_the_chunks_behind_the_skipped_ones(
    rig: Rig, skip_chunks: int, local: bool, promised: bool
) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    if not local:
        forget_local(rig)
    run = run_of(rig)
    if promised:
        rig.storage.lookup(run, R, deadline=soon())

    blocks = [bytes(block.view) for block in rig.storage.fetch(run, R, deadline=soon(), skip_chunks=skip_chunks)]

    rig.storage.flush()
    assert [block[128:] for block in blocks] == [
        rig.stores[0].frames[digest][128:] for digest in run.digests[skip_chunks:]
    ]
    assert until(lambda: rig.arena.blocks == rig.local.chunks)


def test_skipped_chunks_are_not_asked_for(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    run = run_of(rig)
    for digest in run.digests[:2]:
        del rig.stores[0].frames[digest]

    assert fetched(rig, run, R, skip_chunks=2) == 2


def test_a_promise_is_trimmed_to_a_shorter_fetch(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    rig.storage.flush()
    rig.storage.lookup(run_of(rig), R, deadline=soon())
    blocks = rig.storage.fetch(run_of(rig, PROMPT[:8]), R, deadline=soon())
    next(blocks)

    rig.local.clear()

    assert until(lambda: rig.arena.blocks == 2)
    assert sum(1 for _ in blocks) == 1


def test_a_promise_of_other_tokens_is_never_delivered(rig: Rig) -> None:
    """Two requests under one id: what the lookup promised is not what the fetch asks for."""
    other = [place + 100 for place in PROMPT]
    rig.engine.store(PROMPT, some_kv(16))
    rig.storage.lookup(run_of(rig), R, deadline=soon())

    assert fetched(rig, run_of(rig, other), R) == 0
    assert rig.storage.promises == 0


def test_a_promise_serves_a_longer_fetch(rig: Rig) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    rig.storage.lookup(run_of(rig, PROMPT[:8]), R, deadline=soon())

    assert fetched(rig, run_of(rig), R) == 4


# -- claims -------------------------------------------------------------------


def test_two_writers_of_one_chunk_write_it_once(rig: Rig) -> None:
    run = run_of(rig)
    first = rig.storage.make_room(run)
    second = rig.storage.make_room(run)

    assert (first[0], second[0]) == ([0, 1, 2, 3], [])
    assert rig.storage.claims == 4
    rig.storage.abandon(run, *first)


def test_a_writer_fills_what_another_is_not_filling(rig: Rig) -> None:
    short = run_of(rig, PROMPT[:8])
    first = rig.storage.make_room(short)
    run = run_of(rig)
    places, blocks = rig.storage.make_room(run)

    assert places == [2, 3]
    rig.storage.keep(run, places, blocks)
    rig.storage.keep(short, *first)
    assert (rig.local.chunks, rig.storage.claims) == (4, 0)


def test_abandoned_chunks_can_be_claimed_again(rig: Rig) -> None:
    run = run_of(rig)
    rig.storage.abandon(run, *rig.storage.make_room(run))

    assert (rig.storage.claims, rig.local.chunks, rig.arena.used_bytes) == (0, 0, 0)
    places, blocks = rig.storage.make_room(run)
    assert places == [0, 1, 2, 3]
    rig.storage.abandon(run, places, blocks)


def test_chunks_without_room_are_not_claimed() -> None:
    rig = Rig(chunks=2, stores=[])
    run = run_of(rig)
    places, blocks = rig.storage.make_room(run)

    assert (places, rig.storage.claims) == ([0, 1], 2)
    rig.storage.abandon(run, places, blocks)
    rig.close()


def test_a_chunk_is_findable_only_when_it_is_kept(rig: Rig) -> None:
    run = run_of(rig)
    room = rig.storage.make_room(run)
    before = rig.storage.lookup(run, R, deadline=soon()).chunks
    rig.storage.keep(run, *room)

    assert (before, rig.storage.lookup(run, R, deadline=soon()).chunks) == (0, 4)


# -- forsaking ----------------------------------------------------------------


def test_forsaking_gives_up_just_this_lookups_promise(rig: Rig) -> None:
    rig.engine.store(TOKENS, some_kv(10))
    run = run_of(rig, TOKENS)
    first = rig.storage.lookup(run, R, deadline=soon())
    rig.storage.lookup(run, R, deadline=soon())

    assert rig.storage.forsake(R, first)
    assert rig.storage.promises == 1
    assert not rig.storage.forsake(R, first)


def test_a_promise_somebody_came_for_cannot_be_forsaken(rig: Rig) -> None:
    rig.engine.store(TOKENS, some_kv(10))
    run = run_of(rig, TOKENS)
    found = rig.storage.lookup(run, R, deadline=soon())
    fetched(rig, run, R)

    assert not rig.storage.forsake(R, found)


def test_what_promised_nothing_cannot_be_forsaken(rig: Rig) -> None:
    assert not rig.storage.forsake(R, rig.storage.lookup(run_of(rig), R, deadline=soon()))
