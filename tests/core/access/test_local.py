"""The access to this process's tiers: several ranks, prefetches, and what is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.engine_calls import TOKENS, MakeRig, forget_local, retrieved, some_kv, until
from tests.memory_store import CHUNK_TOKENS, Gate, Rig, refuse

from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.local import LocalAccess
from lmcache_core.storage.run import ChunkRun, Request
from lmcache_core.tokens.hashing import token_array

PROMPT = list(range(4 * CHUNK_TOKENS))


def runs_of(rig: Rig, *ranks: int, tokens: list[int] = PROMPT) -> list[ChunkRun]:
    made = ChunkFormat(rig.codec, chunk_tokens=CHUNK_TOKENS, namespace=rig.namespace, ranks=ranks)
    return made.runs(token_array(tokens), "", "")


def fill(rig: Rig, run: ChunkRun, chunks: int) -> None:
    short = ChunkRun(run.namespace, run.digests[:chunks], run.codec)
    rig.access.commit(rig.access.reserve(short, "", deadline=soon()), "", deadline=soon())


def soon() -> float:
    return time.monotonic() + 5.0


# -- several ranks --------------------------------------------------------------


def test_the_smallest_prefix_of_all_ranks_counts(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=16, stores=[])
    runs = runs_of(rig, 0, 1, 2)
    for run, chunks in zip(runs, (4, 2, 3), strict=True):
        fill(rig, run, chunks)

    found = rig.access.lookup(runs, "r", requested_tokens=16, deadline=soon())

    assert (found.chunks, [part.chunks for part in found.parts]) == (2, [4, 2, 3])


def test_what_one_rank_must_load_is_not_in_tier_0(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=16)
    runs = runs_of(rig, 0, 1)
    fill(rig, runs[1], 3)
    forget_local(rig)
    fill(rig, runs[0], 4)

    found = rig.access.lookup(runs, "r", requested_tokens=16, deadline=soon())

    assert (found.l1_chunks, found.chunks) == (0, 3)


def test_tokens_of_several_ranks_are_counted_once(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=16, stores=[])
    runs = runs_of(rig, 0, 1)
    for run in runs:
        fill(rig, run, 2)
    rig.access.lookup(runs, "r", requested_tokens=16, deadline=soon())

    assert (rig.sample("num_requested_tokens_total"), rig.sample("num_hit_tokens_total")) == (16, 8)


def test_each_rank_fetches_what_was_promised_to_it(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=16, stores=[])
    runs = runs_of(rig, 0, 1)
    for run in runs:
        fill(rig, run, 2)
    rig.access.lookup(runs, "r", requested_tokens=16, deadline=soon())
    rig.local.clear()

    for run in runs:
        with rig.access.fetch(run, "r", skip_chunks=0, deadline=soon()) as chunks:
            assert sum(1 for _ in chunks) == 2
    assert rig.arena.used_bytes == 0


def test_releasing_gives_up_the_promises_of_all_ranks(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=16, stores=[])
    runs = runs_of(rig, 0, 1)
    for run in runs:
        fill(rig, run, 2)
    found = rig.access.lookup(runs, "r", requested_tokens=16, deadline=soon())

    rig.access.forsake(runs, "r", found)

    assert rig.storage.promises == 0
    assert not rig.access.release(runs, "r")


def test_a_rank_whose_lookup_fails_leaves_no_promise_of_another(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(chunks=16, stores=[])
    runs = runs_of(rig, 0, 1)
    fill(rig, runs[0], 2)
    look = rig.storage.lookup

    def fail_on_rank_1(run: ChunkRun, request: Request, *, deadline: float) -> object:
        if run.namespace.rank == 1:
            raise RuntimeError("broken")
        return look(run, request, deadline=deadline)

    monkeypatch.setattr(rig.storage, "lookup", fail_on_rank_1)

    with pytest.raises(RuntimeError, match="broken"):
        rig.access.lookup(runs, "r", requested_tokens=16, deadline=soon())
    assert rig.storage.promises == 0


def test_a_rank_beside_one_that_counts_adds_no_tokens(make_rig: MakeRig) -> None:
    rig = make_rig(stores=[])
    beside = LocalAccess(
        rig.storage,
        rig.format,
        is_healthy=lambda: True,
        journal=rig.journal,
        metrics=rig.metrics,
        loaders=rig.loaders,
        counts_tokens=False,
    )
    (run,) = runs_of(rig, 0)
    beside.commit(beside.reserve(run, "", deadline=soon()), "", deadline=soon())

    assert rig.sample("num_stored_tokens_total") == 0


# -- lending --------------------------------------------------------------------


def test_a_lease_for_another_process_holds_what_the_promise_held(make_rig: MakeRig) -> None:
    rig = make_rig(stores=[])
    (run,) = runs_of(rig, 0)
    fill(rig, run, 4)
    rig.access.lookup([run], "r", requested_tokens=16, deadline=soon())
    lease = rig.access.lend(run, "r", skip_chunks=1, deadline=soon())
    rig.local.clear()

    assert (len(lease.blocks), rig.arena.blocks) == (3, 3)
    lease.release()
    assert rig.arena.used_bytes == 0


# -- prefetch -------------------------------------------------------------------


def prefetching(rig: Rig) -> Gate:
    """A store that has the prompt, tier 0 does not, and a load that hangs."""
    rig.engine.store(PROMPT, some_kv(16))
    forget_local(rig)
    gate = Gate("load")
    rig.stores[0].fault = gate
    return gate


def test_a_lookup_of_what_is_here_is_done_at_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(PROMPT, some_kv(16))
    pending = rig.engine.lookup_async(PROMPT)

    assert (pending.done(), pending.result(0.0)) == (True, 16)


def test_a_lookup_loads_while_the_caller_does_something_else(make_rig: MakeRig) -> None:
    rig = make_rig()
    gate = prefetching(rig)
    pending = rig.engine.lookup_async(PROMPT)

    assert (pending.done(), pending.result(0.01)) == (False, 0)
    gate.open()
    assert pending.result() == 16
    assert rig.local.chunks == 4


def test_what_was_prefetched_is_retrieved_without_its_store(make_rig: MakeRig) -> None:
    rig = make_rig()
    prefetching(rig).open()
    assert rig.engine.lookup_async(PROMPT).result() == 16
    rig.stores[0].fault = refuse("contains", "load")

    assert all(retrieved(rig, PROMPT)[0])


def test_a_cancelled_lookup_gives_up_what_it_still_loads(make_rig: MakeRig) -> None:
    rig = make_rig()
    gate = prefetching(rig)
    pending = rig.engine.lookup_async(PROMPT)
    gate.entered.wait(5.0)

    pending.cancel()
    gate.open()

    assert (pending.done(), pending.result()) == (True, 0)
    assert until(lambda: rig.local.chunks == 4)
    assert until(lambda: rig.storage.promises == 0)
    rig.local.clear()
    assert until(lambda: rig.arena.used_bytes == 0)


def test_a_cancelled_lookup_gives_up_what_it_promised(make_rig: MakeRig) -> None:
    rig = make_rig(stores=[])
    rig.engine.store(PROMPT, some_kv(16))
    pending = rig.engine.lookup_async(PROMPT)

    pending.cancel()
    pending.cancel()

    assert rig.storage.promises == 0


def test_a_lookup_cancelled_after_its_retrieve_changes_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(PROMPT, some_kv(16))
    pending = rig.engine.lookup_async(PROMPT)
    assert all(retrieved(rig, PROMPT)[0])
    rig.engine.lookup(PROMPT)

    pending.cancel()

    assert rig.storage.promises == 1


def test_a_late_lookup_is_a_miss_and_holds_nothing(make_rig: MakeRig) -> None:
    rig = make_rig(timeout_s=0.2)
    gate = prefetching(rig)
    pending = rig.engine.lookup_async(PROMPT)

    assert pending.result() == 0
    gate.open()
    assert until(lambda: rig.storage.promises == 0)


def test_a_lookup_that_breaks_is_a_counted_miss(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    monkeypatch.setattr(rig.storage, "prefetch", broken)

    assert rig.engine.lookup_async(PROMPT).result() == 0
    assert rig.sample("request_errors_total", operation="lookup", reason="RuntimeError") == 1


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("broken")


def test_a_lookup_of_an_unhealthy_cache_is_over_at_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.healthy = False
    pending = rig.engine.lookup_async(PROMPT)

    assert (pending.done(), pending.result()) == (True, 0)
    pending.cancel()


def test_a_hanging_store_delays_no_lookup_of_what_is_here(make_rig: MakeRig) -> None:
    rig = make_rig()
    gate = prefetching(rig)
    for number in range(8):  # more than there are loaders
        rig.engine.lookup_async(PROMPT, request_id=str(number))
    gate.entered.wait(5.0)
    rig.engine.store(TOKENS, some_kv(10), salt="t")
    pending = rig.engine.lookup_async(TOKENS, salt="t")

    assert (pending.done(), pending.result(0.0)) == (True, 8) or rig.local.chunks < 2
    gate.open()


# -- one chunk, two writers -------------------------------------------------------


def test_two_engines_that_store_at_once_write_each_chunk_once(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=64)
    kv = some_kv(16)
    stored: list[int] = []
    start = threading.Barrier(4)

    def store() -> None:
        start.wait(5.0)
        stored.append(rig.engine.store(PROMPT, kv))

    in_threads(store, 4)

    assert (sum(stored), rig.local.chunks, rig.storage.claims) == (16, 4, 0)


def in_threads(call: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)


# -- skipping ---------------------------------------------------------------------


@pytest.mark.parametrize(("skip_tokens", "filled_from"), [(0, 0), (3, 0), (4, 4), (9, 8), (16, 16), (99, 16), (-1, 0)])
def test_whole_chunks_that_the_caller_has_are_not_copied(make_rig: MakeRig, skip_tokens: int, filled_from: int) -> None:
    rig, kv = make_rig(), some_kv(16) + 1
    rig.engine.store(PROMPT, kv)

    mask, out = retrieved(rig, PROMPT, skip_tokens=skip_tokens)

    assert all(mask)
    assert not out[:, :, :filled_from].any()
    assert out[:, :, filled_from:].equal(kv[:, :, filled_from:])
    assert rig.sample("num_retrieved_tokens_total") == 16 - filled_from


def test_variants_never_meet(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10), variant="lora-a")

    answers = {name: rig.engine.lookup(TOKENS, variant=name) for name in ("lora-a", "lora-b", "")}
    assert answers == {"lora-a": 8, "lora-b": 0, "": 0}
