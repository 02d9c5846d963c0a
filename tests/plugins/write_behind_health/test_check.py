from collections.abc import Iterator

import pytest
import torch
from tests.memory_store import Gate, MemoryStore, Rig

from lmcache_core import CheckResult
from lmcache_plugins.write_behind_health.check import WriteBehindHealthCheck
from lmcache_plugins.write_behind_health.settings import WriteBehindHealthSettings


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(chunks=64, write_behind_chunks=10, stores=[MemoryStore(), MemoryStore()])
    yield rig
    rig.close()


def a_check(rig: Rig, **settings: float) -> WriteBehindHealthCheck:
    return WriteBehindHealthCheck(lambda: rig.storage.write_behind()[1], WriteBehindHealthSettings(**settings))


def hang(rig: Rig) -> None:
    """The second store hangs, with one chunk in hand."""
    gate = Gate("store")
    rig.stores[1].fault = gate
    store(rig, 0)
    assert gate.entered.wait(10)


def store(rig: Rig, *numbers: int) -> None:
    for number in numbers:
        tokens = range(1000 * number, 1000 * number + 4)
        rig.engine.store(tokens, torch.zeros(rig.layout.kv_shape(4)))


def test_an_empty_queue_is_fine(rig: Rig) -> None:
    assert a_check(rig).check() == CheckResult(
        healthy=True, details={"waiting_chunks": 0, "limit_chunks": 10, "shed_chunks": 0}
    )


def test_a_queue_near_its_bound_is_a_reservation(rig: Rig) -> None:
    check = a_check(rig)
    hang(rig)
    store(rig, *range(1, 9))
    before = check.check()
    store(rig, 9)
    result = check.check()

    assert (before.degraded, result.healthy, result.degraded) == (False, True, True)
    assert result.reason == (
        "9 of at most 10 chunks wait to be written to RemoteBackend-1, 0 were shed since the last look; "
        "the store is slower than what is stored"
    )


def test_chunks_that_were_shed_are_a_reservation_once(rig: Rig) -> None:
    check = a_check(rig, full_share=1.0)
    hang(rig)
    store(rig, *range(1, 13))
    first = check.check()
    rig.stores[1].fault.open()
    rig.storage.flush(10.0)

    assert "2 were shed since the last look" in first.reason
    assert not check.check().degraded


def test_the_other_stores_queue_does_not_count(rig: Rig) -> None:
    check = WriteBehindHealthCheck(lambda: rig.storage.write_behind()[0], WriteBehindHealthSettings())
    hang(rig)
    for number in range(1, 12):
        store(rig, number)
        assert rig.storage.flush_backend("RemoteBackend-0", 10.0)

    assert check.check() == CheckResult(
        healthy=True, details={"waiting_chunks": 0, "limit_chunks": 10, "shed_chunks": 0}
    )


def test_a_dead_thread_is_named_and_fails_writes_only(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    check = a_check(rig)
    writer = rig.storage._writers[1]

    monkeypatch.setattr(writer, "_take", list)  # an empty batch ends it, after the one it waits for
    store(rig, 1)
    writer._threads[0].join(10)
    result = check.check()

    assert (result.healthy, result.failing) == (False, {"writes"})
    assert result.reason == "thread 'lmcache-RemoteBackend-1-behind-0' died; restart the process"


def test_threads_that_were_stopped_are_not_dead(rig: Rig) -> None:
    check = a_check(rig)
    rig.close()

    assert check.check().healthy


def test_an_error_in_one_batch_ends_no_thread(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("cannot seal")

    check = a_check(rig)
    with monkeypatch.context() as patch:
        patch.setattr(rig.codec, "seal", fail)
        store(rig, 1)
        assert rig.storage.flush(10.0)
    store(rig, 2)
    assert rig.storage.flush(10.0)

    assert rig.sample("lost_chunks_total", backend="RemoteBackend-1", reason="error") == 1
    assert len(rig.stores[1].frames) == 1
    assert check.check().healthy


def test_it_speaks_for_the_writes_of_its_store(rig: Rig) -> None:
    check = a_check(rig)

    assert (check.name(), check.get_bypass_backend_name(), check.fallback_policy) == (
        "WriteBehindHealthCheck(RemoteBackend-1)",
        "RemoteBackend-1",
        "read_only",
    )
