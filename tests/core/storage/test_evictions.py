"""A store that is asked what it evicted, and does something else: no batch is lost, and no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.engine_calls import some_kv, until
from tests.memory_store import MemoryStore, Rig


class Teller(MemoryStore):
    """A store whose evictions are counted by what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[], object] = lambda: 0
        self.asked = 0

    def evicted_chunks(self) -> int:
        self.asked += 1
        return self.tell()  # type: ignore[return-value]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(stores=[Teller()], timeout_s=1.0, chunks=32)
    yield made
    made.close()


def store(rig: Rig, number: int) -> None:
    rig.engine.store(range(100 * number, 100 * number + 4), some_kv(4))
    assert rig.storage.flush(5.0)


def written(rig: Rig) -> float:
    return rig.sample("written_chunks_total", backend="RemoteBackend-0")


def errors(rig: Rig) -> float:
    return rig.sample("eviction_report_errors_total", backend="RemoteBackend-0")


def evicted(rig: Rig) -> float:
    return rig.sample("evicted_chunks_total", backend="RemoteBackend-0")


def end() -> object:
    raise SystemExit(3)


def break_off() -> object:
    raise ZeroDivisionError("its own fault")


def test_evictions_are_counted_once(rig: Rig) -> None:
    for number, total in enumerate([2, 2, 5, 4, 6]):
        rig.stores[0].tell = lambda total=total: total
        store(rig, number)

    assert (evicted(rig), errors(rig)) == (6, 0)


@pytest.mark.parametrize(
    ("tell", "sentence"),
    [
        (break_off, "ZeroDivisionError: its own fault"),
        (end, "SystemExit: 3"),
        (lambda: None, "must be a whole number, got NoneType"),
    ],
)
def test_a_store_that_raises_loses_no_batch(
    rig: Rig, tell: Callable[[], object], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.stores[0].tell = tell
    for number in range(3):
        store(rig, number)

    assert (written(rig), errors(rig), len(rig.stores[0].frames)) == (3, 3, 3)
    assert rig.storage.write_behind()[0].dead_threads == ()
    assert [message for message in caplog.messages if "evicted_chunks" in message] == [
        (
            f"RemoteBackend-0 (memory://0): evicted_chunks: {sentence}; "
            "nothing is lost, but its evictions are not counted (said once)"
        )
    ]


def test_a_store_that_hangs_is_waited_for_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    rig.stores[0].tell = lambda: release.wait(30.0) and 4
    for number in range(4):
        store(rig, number)

    assert (written(rig), errors(rig), rig.stores[0].asked) == (4, 1, 1)
    assert [message for message in caplog.messages if "evicted_chunks" in message] == [
        (
            "RemoteBackend-0 (memory://0): evicted_chunks: no answer before its deadline; "
            "nothing is lost, but its evictions are not counted (said once)"
        )
    ]
    assert not any(record.exc_info for record in caplog.records)
    release.set()


def test_what_it_evicted_meanwhile_is_counted_when_it_answers_again(rig: Rig) -> None:
    release = threading.Event()
    rig.stores[0].tell = lambda: release.wait(30.0) and 4
    store(rig, 0)
    rig.stores[0].tell = lambda: 7
    release.set()
    assert until(rig.tiers[0]._evictions._owed.done)
    store(rig, 1)

    assert evicted(rig) == 7


def test_a_store_that_hangs_is_still_pinged(rig: Rig) -> None:
    release = threading.Event()
    rig.stores[0].tell = lambda: release.wait(30.0) and 0
    for number in range(3):
        store(rig, number)

    assert rig.tiers[0].ping(timeout_s=5.0) >= 0
    release.set()
