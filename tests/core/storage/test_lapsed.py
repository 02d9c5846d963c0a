"""What is remembered of lookups, and of those whose retrieve did not come in time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

import pytest
from tests.engine_calls import forget_local, some_kv
from tests.memory_store import CHUNK_TOKENS, Rig

from lmcache_core.memory.lease import Lease, PromiseTable
from lmcache_core.storage.fetch import Promised
from lmcache_core.storage.lapsed import LapsedPromises
from lmcache_core.storage.run import ChunkRun, Request
from lmcache_core.tokens.hashing import token_array

PROMPT = list(range(4 * CHUNK_TOKENS))
R = Request(b"r", "r")
ALL_DIGESTS = 1 << 16


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(chunks=16)
    yield made
    made.close()


@pytest.fixture
def table() -> PromiseTable[Promised]:
    return PromiseTable(ttl_s=0.0)


def run_of(rig: Rig, tokens: list[int] = PROMPT) -> ChunkRun:
    return rig.format.run(token_array(tokens), "", "")


def found_of(rig: Rig, asked: int, found: int) -> Promised:
    digests = tuple(hashlib.sha256(b"%d" % place).digest() for place in range(asked))
    return Promised.of(ChunkRun(rig.namespace(), digests, rig.codec), (), found)


def lapse(rig: Rig, table: PromiseTable[Promised], lapsed: LapsedPromises, name: str, chunks: int) -> Request:
    request = Request(name.encode(), name)
    table.add(request, Lease(rig.arena, ()), found_of(rig, chunks, chunks))
    lapsed.sweep(table)
    return request


def test_a_promise_keeps_no_digests_of_what_was_not_found(rig: Rig) -> None:
    rig.engine.store(PROMPT[:4], some_kv(4))
    run = run_of(rig)
    rig.storage.lookup(run, R, deadline=time.monotonic() + 5.0)

    promised = rig.storage._promises.plan_of(R)

    assert promised is not None
    assert promised.digests == run.digests[:1]


def test_a_promise_of_a_store_keeps_what_the_store_has(rig: Rig) -> None:
    rig.engine.store(PROMPT[:8], some_kv(8))
    forget_local(rig)
    run = run_of(rig)
    rig.storage.lookup(run, R, deadline=time.monotonic() + 5.0)

    promised = rig.storage._promises.plan_of(R)

    assert promised is not None
    assert (promised.digests, promised.resident) == (run.digests[:2], 0)


@pytest.mark.parametrize(
    ("fetched_chunks", "same_head", "same_rest", "serves"),
    [
        (0, True, True, True),
        (1, True, True, True),
        (2, True, True, True),
        (2, False, True, False),
        (3, True, True, False),  # of what was asked for there, nothing is known any more
        (4, True, True, True),
        (4, True, False, False),
        (5, True, True, True),
        (5, True, False, False),
    ],
)
def test_a_promise_serves_a_fetch_of_its_own_tokens(
    rig: Rig, fetched_chunks: int, same_head: bool, same_rest: bool, serves: bool
) -> None:
    head = PROMPT[:8] if same_head else [7] * 8
    rest = [*PROMPT[8:], 0, 0, 0, 0] if same_rest else [9] * 12
    fetch = run_of(rig, [*head, *rest][: fetched_chunks * CHUNK_TOKENS])

    assert Promised.of(run_of(rig), (), 2).serves(fetch) is serves


def test_what_lapsed_is_given_once_and_without_its_plan(rig: Rig, table: PromiseTable[Promised]) -> None:
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    run = run_of(rig)
    rig.storage.lookup(run, R, deadline=time.monotonic() + 5.0)
    promised = rig.storage._promises.plan_of(R)
    assert promised is not None
    lapsed = LapsedPromises()
    table.add(R, Lease(rig.arena, ()), promised)

    swept = lapsed.sweep(table)
    first, second = lapsed.take(run, R), lapsed.take(run, R)

    assert first is not None
    assert (swept, first.chunks, first.plan, second) == (1, 4, (), None)


def test_many_digests_push_out_the_oldest(rig: Rig, table: PromiseTable[Promised]) -> None:
    lapsed = LapsedPromises()
    old = lapse(rig, table, lapsed, "old", 2)
    middle = lapse(rig, table, lapsed, "middle", ALL_DIGESTS // 2)
    new = lapse(rig, table, lapsed, "new", ALL_DIGESTS // 2)

    assert [lapsed.forget(one) is not None for one in (old, middle, new)] == [False, True, True]


def test_a_request_that_lapses_again_counts_once(rig: Rig, table: PromiseTable[Promised]) -> None:
    lapsed = LapsedPromises()
    other = lapse(rig, table, lapsed, "other", 2)
    for _ in range(3):
        again = lapse(rig, table, lapsed, "again", ALL_DIGESTS // 2)

    assert [lapsed.forget(one) is not None for one in (other, again)] == [True, True]


def test_so_many_promises_are_remembered(rig: Rig, table: PromiseTable[Promised]) -> None:
    lapsed = LapsedPromises()
    for place in range(300):
        lapse(rig, table, lapsed, f"r{place}", 1)

    assert len(lapsed) == 256


def test_what_has_no_name_is_not_remembered(rig: Rig, table: PromiseTable[Promised]) -> None:
    lapsed = LapsedPromises()
    table.add(Request(b"digest"), Lease(rig.arena, ()), found_of(rig, 2, 2))

    assert (lapsed.sweep(table), len(lapsed)) == (1, 0)


@pytest.mark.parametrize("call", ["lookup", "lookup_resident", "prefetch", "release"])
def test_whoever_looks_again_or_gives_up_is_owed_nothing(call: str) -> None:
    rig = Rig(chunks=16, stores=[])
    rig.storage._promises._ttl_s = 0.0
    rig.engine.store(PROMPT, some_kv(16))
    run, other = run_of(rig), run_of(rig, [9] * 8)
    rig.storage.lookup_resident(run, R)
    rig.storage.sweep()
    before = len(rig.storage._lapsed)

    if call == "release":
        rig.storage.release(R)
    elif call == "lookup_resident":
        rig.storage.lookup_resident(other, R)
    else:
        getattr(rig.storage, call)(other, R, deadline=time.monotonic() + 5.0)

    assert (before, len(rig.storage._lapsed)) == (1, 0)
    rig.close()
