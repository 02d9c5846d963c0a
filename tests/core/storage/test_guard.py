import time
from collections.abc import Callable, Iterator

import pytest
from tests.memory_store import Gate, Rig, refuse

from lmcache_core import BackendError, BackendTimeoutError, ChunkKey, LoadResult

MakeRig = Callable[..., Rig]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(timeout_s=0.1)
    yield made
    made.close()


def test_bypass_ends_when_its_last_owner_lets_go(rig: Rig) -> None:
    tier = rig.tiers[0]
    tier.hold_bypass("operator", "maintenance")
    tier.hold_bypass("check:x", "down")

    tier.release_bypass("check:x")
    held = tier.bypassed
    tier.release_bypass("operator")

    assert (held, tier.bypassed) == (True, False)


def test_bypass_shows_in_the_gauge(rig: Rig) -> None:
    rig.storage.set_backend_bypass("RemoteBackend-0", True, owner="operator")

    assert rig.sample("backend_bypassed", backend="RemoteBackend-0") == 1
    assert rig.storage.bypassed() == {"RemoteBackend-0": ("operator",)}


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
    tier.hold_bypass("operator", "")
    key = ChunkKey(rig.namespace(""), b"k" * 32)
    out = bytearray(3)

    tier.store([(key, memoryview(b"abc"))], timeout_s=1.0)

    assert tier.load_into([key], [memoryview(out)], timeout_s=1.0) == [LoadResult.HIT]
    assert (bytes(out), tier.delete([key], timeout_s=1.0)) == (b"abc", 1)


def test_close_waits_a_second_at_most_for_a_hung_store(rig: Rig) -> None:
    gate = Gate("ping")
    rig.stores[0].fault = gate
    rig.stores[0].close = lambda: gate("ping")  # type: ignore[method-assign]
    started = time.monotonic()

    rig.storage.close(0.0)

    assert time.monotonic() - started < 2


def test_repeated_failures_are_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.stores[0].fault = refuse("contains")
    for _ in range(50):
        rig.engine.lookup([1, 2, 3, 4])

    assert caplog.messages == ["load failed, treated as a miss: store refused (at most one such line in 10 s)"]
    assert rig.tiers[0].load_failures == 50
