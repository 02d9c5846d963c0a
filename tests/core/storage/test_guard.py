import time
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.memory_store import LAYOUT, Gate, Rig, refuse

from lmcache_core import BackendError, BackendTimeoutError, ChunkKey, LoadResult
from lmcache_core.storage.bypass import Bypass, Hold

MakeRig = Callable[..., Rig]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(timeout_s=0.1)
    yield made
    made.close()


@pytest.fixture
def still() -> Iterator[Rig]:
    """A rig whose store is given time to answer, and whose breaker's clock stands."""
    made = Rig(clock=lambda: 0.0)
    yield made
    made.close()


def test_bypass_ends_when_its_last_owner_lets_go(rig: Rig) -> None:
    bypass = rig.tiers[0].bypass
    bypass.hold("operator", Hold("maintenance", reads=True, writes=True))
    bypass.hold("check:x", Hold("down", reads=True, writes=True))

    bypass.release("check:x")
    held = bypass.reads
    bypass.release("operator")

    assert (held, bypass.reads) == (True, False)


def test_bypass_shows_in_the_gauge(rig: Rig) -> None:
    rig.storage.set_backend_bypass("RemoteBackend-0", True, owner="operator")

    assert rig.sample("backend_bypassed", backend="RemoteBackend-0") == 1
    assert rig.storage.bypassed() == {"RemoteBackend-0": ("operator",)}


def test_holds_and_their_gauge_change_under_one_lock() -> None:
    """Else of two threads the later one may tell first, and the gauge stays wrong."""
    told: list[tuple[bool, bool]] = []
    bypass = Bypass(lambda held: told.append((held, bypass._lock.locked())))
    bypass.hold("operator", Hold("", reads=True, writes=True))
    bypass.release("operator")

    assert told == [(True, True), (False, True)]


def test_a_write_left_out_while_the_hold_ends_is_not_the_breakers_fault(rig: Rig) -> None:
    class Ending:
        answers = iter([True, False])
        writes = property(lambda self: next(self.answers))

    rig.tiers[0].bypass = Ending()  # type: ignore[assignment]

    assert rig.tiers[0].write([], lambda: None) == "bypassed"


def test_bypass_of_an_unknown_backend_names_the_known_ones(rig: Rig) -> None:
    with pytest.raises(KeyError) as caught:
        rig.storage.set_backend_bypass("Remote", True, owner="operator")

    assert caught.value.args[0] == "no backend 'Remote' can be bypassed; known: RemoteBackend-0"


def test_ping_gives_milliseconds_and_code_0(rig: Rig) -> None:
    assert rig.tiers[0].ping(timeout_s=1.0) >= 0
    assert rig.sample("remote_ping_error_code", backend="RemoteBackend-0") == 0
    assert rig.sample("remote_ping_successes_total", backend="RemoteBackend-0") == 1


def test_hung_ping_is_code_minus_1(rig: Rig) -> None:
    rig.stores[0].fault = Gate("ping")

    with pytest.raises(BackendTimeoutError) as caught:
        rig.tiers[0].ping(timeout_s=0.05)

    assert str(caught.value) == "RemoteBackend-0 (memory://0): ping gave no answer before its deadline"
    assert rig.sample("remote_ping_error_code", backend="RemoteBackend-0") == -1
    assert rig.sample("remote_ping_errors_total", backend="RemoteBackend-0") == 1


def test_refused_ping_is_code_minus_2(rig: Rig) -> None:
    rig.stores[0].fault = refuse("ping")

    with pytest.raises(BackendError):
        rig.tiers[0].ping(timeout_s=1.0)

    assert rig.sample("remote_ping_error_code", backend="RemoteBackend-0") == -2


def test_error_code_stays_until_the_next_ping(rig: Rig) -> None:
    """The peer clears it every ten seconds, so that it reads success for most of an outage."""
    rig.stores[0].fault = refuse("ping")
    with pytest.raises(BackendError):
        rig.tiers[0].ping(timeout_s=1.0)

    scrapes = [rig.sample("remote_ping_error_code", backend="RemoteBackend-0") for _ in range(3)]

    assert scrapes == [-2, -2, -2]


def test_exception_of_a_store_becomes_a_backend_error(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.stores[0].fault = refuse("ping", error=ZeroDivisionError("oops"))

    with pytest.raises(BackendError) as caught:
        rig.tiers[0].ping(timeout_s=1.0)

    assert str(caught.value) == "RemoteBackend-0 (memory://0): ping raised ZeroDivisionError: oops"
    assert caplog.records[0].exc_info is not None


def test_probes_still_work_while_live_calls_hang(rig: Rig) -> None:
    rig.stores[0].fault = Gate("contains")
    for _ in range(8):
        rig.engine.lookup([1, 2, 3, 4])

    assert rig.tiers[0].ping(timeout_s=1.0) >= 0


def test_probes_go_past_the_bypass(rig: Rig) -> None:
    tier = rig.tiers[0]
    tier.bypass.hold("operator", Hold("", reads=True, writes=True))
    key = ChunkKey(rig.namespace(), b"k" * 32)
    out = bytearray(3)

    tier.store([(key, memoryview(b"abc"))], timeout_s=1.0)

    assert tier.load_into([key], [memoryview(out)], timeout_s=1.0) == [LoadResult.HIT]
    assert (bytes(out), tier.delete([key], timeout_s=1.0)) == (b"abc", 1)


@pytest.mark.timing
def test_close_waits_a_second_at_most_for_a_hung_store(rig: Rig) -> None:
    gate = Gate("ping")
    rig.stores[0].fault = gate
    rig.stores[0].close = lambda: gate("ping")  # type: ignore[method-assign]
    started = time.monotonic()

    rig.storage.close(0.0)

    assert time.monotonic() - started < 2


def test_repeated_failures_are_logged_once(still: Rig, caplog: pytest.LogCaptureFixture) -> None:
    still.stores[0].fault = refuse("contains")
    for _ in range(50):
        still.engine.lookup([1, 2, 3, 4])

    assert [message for message in caplog.messages if "treated as a miss" in message] == [
        "load failed, treated as a miss: store refused (at most one such line in 10 s)"
    ]


def test_failing_store_is_cut_off_after_three_errors(still: Rig) -> None:
    still.stores[0].fault = refuse("contains")
    for _ in range(50):
        still.engine.lookup([1, 2, 3, 4])

    assert still.tiers[0].load_failures == 3
    assert still.sample("breaker_state", backend="RemoteBackend-0") == 3
    assert still.sample("breaker_opened_total", backend="RemoteBackend-0") == 1


@pytest.mark.timing
def test_hung_store_costs_one_deadline_then_nothing(rig: Rig) -> None:
    rig.stores[0].fault = Gate("contains")
    rig.engine.lookup([1, 2, 3, 4])
    started = time.monotonic()

    for _ in range(100):
        rig.engine.lookup([1, 2, 3, 4])

    assert time.monotonic() - started < 0.1
    assert rig.tiers[0].load_failures == 1


def test_store_is_used_again_after_the_trials() -> None:
    now_s = [0.0]
    rig = Rig(clock=lambda: now_s[0])
    rig.stores[0].fault = refuse("contains")
    for _ in range(3):
        rig.engine.lookup([1, 2, 3, 4])
    calls: list[str] = []
    rig.stores[0].fault = calls.append

    for _ in range(10):
        now_s[0] += 2.0
        rig.engine.lookup([1, 2, 3, 4])
    rig.close()

    assert calls.count("contains") >= 5
    assert rig.sample("breaker_state", backend="RemoteBackend-0") == 0


def test_lost_writes_of_an_open_breaker_are_counted(still: Rig) -> None:
    still.stores[0].fault = refuse("contains")
    for _ in range(3):
        still.engine.lookup([1, 2, 3, 4])

    still.engine.store([1, 2, 3, 4], torch.ones(LAYOUT.kv_shape(4)))

    assert still.sample("lost_chunks_total", backend="RemoteBackend-0", reason="breaker_open") == 1


def test_bypass_of_writes_alone_still_reads(still: Rig) -> None:
    still.engine.store([1, 2, 3, 4], torch.ones(LAYOUT.kv_shape(4)))
    still.storage.flush()
    still.storage.set_backend_bypass("RemoteBackend-0", True, owner="me", reads=False)
    still.local.clear()

    assert still.engine.lookup([1, 2, 3, 4]) == 4
    still.engine.store([5, 6, 7, 8], torch.ones(LAYOUT.kv_shape(4)))
    assert still.sample("lost_chunks_total", backend="RemoteBackend-0", reason="bypassed") == 1


def test_bypass_of_reads_alone_still_writes(rig: Rig) -> None:
    rig.storage.set_backend_bypass("RemoteBackend-0", True, owner="me", writes=False)
    rig.engine.store([1, 2, 3, 4], torch.ones(LAYOUT.kv_shape(4)))
    rig.storage.flush()
    rig.local.clear()

    assert rig.engine.lookup([1, 2, 3, 4]) == 0
    assert len(rig.stores[0].frames) == 1
