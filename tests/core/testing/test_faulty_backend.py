"""A store around a real one: without faults it keeps the contract; each fault does its harm and no more."""

import threading
import time
from collections.abc import Iterator

import pytest
from tests.memory_store import MemoryStore

from lmcache_core import BackendError, BackendFullError, LoadResult, StorageBackend
from lmcache_core.testing import (
    Call,
    CallDelay,
    CallError,
    CallHang,
    Clear,
    FaultyBackend,
    LoadCorruption,
    LoadFailure,
    LoadMiss,
    LoadTruncation,
    StorageBackendContract,
    StoreCut,
)
from lmcache_core.testing.storage import make_frame, make_key, soon
from lmcache_plugins.file.backend import FileBackend

FRAME = make_frame(0, 5000)
CALLS = (Call.CONTAINS, Call.LOAD, Call.STORE, Call.DELETE, Call.PING)


class TestWithoutFaults(StorageBackendContract):
    @pytest.fixture
    def backend(self, tmp_path) -> Iterator[StorageBackend]:
        made = FaultyBackend(FileBackend(str(tmp_path / "kv"), name="RemoteBackend"))
        yield made
        made.close()


@pytest.fixture
def store() -> Iterator[FaultyBackend]:
    """Has chunks 0 to 99, of 5000 bytes."""
    memory = MemoryStore()
    memory.store([(make_key(number), FRAME) for number in range(100)], deadline=soon())
    made = FaultyBackend(memory, seed=7)
    yield made
    made.close()


def load(store: FaultyBackend, chunks: int = 1) -> tuple[list[LoadResult], list[bytearray]]:
    outs = [bytearray(b"x" * 5000) for _ in range(chunks)]
    keys = [make_key(number) for number in range(chunks)]
    return store.load_into(keys, [memoryview(out) for out in outs], deadline=soon()), outs


def run(store: FaultyBackend, call: Call) -> None:
    if call is Call.CONTAINS:
        store.contains([make_key(0)], deadline=soon())
    elif call is Call.LOAD:
        load(store)
    elif call is Call.STORE:
        store.store([(make_key(0), FRAME)], deadline=soon())
    elif call is Call.DELETE:
        store.delete([make_key(0)], deadline=soon())
    else:
        store.ping(deadline=soon())


@pytest.mark.parametrize("call", CALLS)
def test_an_error_is_raised_by_its_calls_and_no_others(store: FaultyBackend, call: Call) -> None:
    store.faults.apply(CallError(calls=call))
    for other in CALLS:
        if other is call:
            with pytest.raises(BackendError) as caught:
                run(store, other)
            assert str(caught.value) == "the faulty store was told to fail"
        else:
            run(store, other)


@pytest.mark.parametrize("error", [BackendFullError, SystemExit, KeyboardInterrupt, MemoryError])
def test_anything_can_be_raised(store: FaultyBackend, error: type[BaseException]) -> None:
    store.faults.apply(CallError(error))

    with pytest.raises(error):
        store.ping(deadline=soon())


def test_a_delay_takes_its_time(store: FaultyBackend) -> None:
    store.faults.apply(CallDelay(0.1, calls=Call.PING))
    begin_s = time.monotonic()
    store.ping(deadline=soon())

    assert time.monotonic() - begin_s >= 0.1


def test_a_hang_ends_when_it_is_cleared(store: FaultyBackend) -> None:
    store.faults.apply(CallHang(calls=Call.PING))
    threads = [threading.Thread(target=store.ping, kwargs={"deadline": soon()}) for _ in range(3)]
    for thread in threads:
        thread.start()
    hung = store.faults.wait_hung(3, 10.0)
    store.faults.clear()
    for thread in threads:
        thread.join(10.0)

    assert hung
    assert not any(thread.is_alive() for thread in threads)
    assert store.faults.statistics.applied == {"CallHang": 3}


def test_closing_lets_go_what_hangs(store: FaultyBackend) -> None:
    store.faults.apply(CallHang())
    thread = threading.Thread(target=store.ping, kwargs={"deadline": soon()})
    thread.start()
    store.faults.wait_hung(1, 10.0)
    store.close()
    thread.join(10.0)

    assert not thread.is_alive()


def test_a_lost_chunk_is_promised_and_missing(store: FaultyBackend) -> None:
    store.faults.apply(LoadMiss())

    assert store.contains([make_key(0)], deadline=soon()) == 1
    assert load(store) == ([LoadResult.MISS], [b"x" * 5000])


def test_a_failed_chunk_is_no_miss(store: FaultyBackend) -> None:
    store.faults.apply(LoadFailure())

    assert load(store)[0] == [LoadResult.FAILED]


def test_corruption_changes_one_byte_of_a_hit(store: FaultyBackend) -> None:
    store.faults.apply(LoadCorruption())
    results, (out,) = load(store)

    assert results == [LoadResult.HIT]
    assert sum(got != right for got, right in zip(out, FRAME, strict=True)) == 1


def test_truncation_leaves_zeros_behind(store: FaultyBackend) -> None:
    store.faults.apply(LoadTruncation(share=0.2))
    results, (out,) = load(store)

    assert results == [LoadResult.HIT]
    assert out == bytes(FRAME[:1000]) + bytes(4000)


def test_a_store_that_stops_keeps_what_it_has(store: FaultyBackend) -> None:
    store.faults.apply(StoreCut(chunks=1))
    with pytest.raises(BackendError) as caught:
        store.store([(make_key(number), FRAME) for number in (200, 201)], deadline=soon())

    assert str(caught.value) == "the faulty store was told to stop after 1 chunk(s)"
    assert store.contains([make_key(200), make_key(201)], deadline=soon()) == 1


def test_chance_falls_on_some_chunks_and_keeps_places(store: FaultyBackend) -> None:
    store.faults.apply(LoadMiss(probability=0.5))
    results, outs = load(store, 100)
    hits = [result is LoadResult.HIT for result in results]

    assert 20 < sum(hits) < 80
    assert [out == FRAME for out in outs] == hits
    assert store.faults.statistics.applied == {"LoadMiss": 100 - sum(hits)}


def test_the_same_seed_harms_the_same_calls() -> None:
    def harmed(seed: int) -> list[bool]:
        store = FaultyBackend(MemoryStore(), seed=seed)
        store.faults.apply(CallError(calls=Call.PING, probability=0.5))
        found = []
        for _ in range(50):
            try:
                store.ping(deadline=soon())
                found.append(False)
            except BackendError:
                found.append(True)
        return found

    assert harmed(7) == harmed(7) != harmed(8)


def test_a_probability_is_from_0_to_1() -> None:
    with pytest.raises(ValueError) as caught:
        LoadMiss(probability=1.5)

    assert str(caught.value) == "probability must be from 0 to 1, got 1.5"


def test_a_schedule_changes_faults_by_the_clock(store: FaultyBackend) -> None:
    schedule = store.faults.schedule([(0.0, CallError()), (0.01, Clear())])

    assert schedule.wait(10.0)
    assert store.faults.current == ()


def test_calls_are_counted(store: FaultyBackend) -> None:
    run(store, Call.PING)
    run(store, Call.PING)
    run(store, Call.LOAD)

    assert store.faults.statistics.calls == {Call.PING: 2, Call.LOAD: 1}


def test_clearing_the_store_is_not_clearing_the_faults(store: FaultyBackend) -> None:
    store.faults.apply(CallError())

    assert store.clear(deadline=soon()) is None
    assert store.faults.current == (CallError(),)
