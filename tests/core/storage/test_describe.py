import threading
from collections.abc import Iterator

import pytest
import torch
from tests.memory_store import CHUNK_TOKENS, Gate, Rig, refuse

from lmcache_core import BackendError, BackendReport
from lmcache_core.storage.breaker import BreakerReport, BreakerTerms

TOKENS = list(range(2 * CHUNK_TOKENS))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(clock=Clock(), breaker=BreakerTerms(failures=2))
    yield rig
    rig.close()


def described(rig: Rig) -> BackendReport:
    (report,) = rig.storage.describe()
    return report


def test_a_new_store_has_nothing_against_it(rig: Rig) -> None:
    report = described(rig)

    assert (report.name, report.url) == ("RemoteBackend-0", "memory://0")
    assert (report.holds, report.load_failures, report.last_ping, report.last_failure) == ((), 0, None, None)
    assert (report.breaker.state, report.breaker.opened, report.waiting_chunks) == ("closed", 0, 0)


def test_the_last_ping_is_kept_with_its_age(rig: Rig) -> None:
    rig.tiers[0].ping(timeout_s=5.0)
    rig.clock.now_s += 7.0  # type: ignore[attr-defined]
    ping = described(rig).last_ping

    assert ping is not None
    assert (ping.code, ping.age_s) == (0, 7.0)
    assert ping.latency_ms >= 0


def test_a_failed_ping_has_its_code(rig: Rig) -> None:
    rig.stores[0].fault = refuse("ping")
    with pytest.raises(BackendError):
        rig.tiers[0].ping(timeout_s=5.0)
    ping = described(rig).last_ping

    assert ping is not None
    assert ping.code == -2


def test_the_last_failure_of_live_traffic_is_kept(rig: Rig) -> None:
    rig.stores[0].fault = refuse("contains")
    rig.engine.lookup(TOKENS)
    report = described(rig)

    assert report.last_failure is not None
    assert (report.last_failure.call, report.last_failure.reason) == ("load", "store refused")
    assert report.load_failures == 1


def test_an_open_breaker_tells_its_reason_trial_and_rule(rig: Rig) -> None:
    rig.stores[0].fault = refuse("contains")
    for _ in range(2):
        rig.engine.lookup(TOKENS)
    breaker = described(rig).breaker

    assert (breaker.state, breaker.reason, breaker.opened) == ("open", "2 calls in a row failed", 1)
    assert 0.8 <= breaker.next_trial_s <= 1.2
    assert breaker.rule == (
        "opens at the first call that gets no answer in time, after 2 failed calls in a row, or when half of at least "
        "10 calls within 10 s failed or took over 5 s; a trial comes after 1 s, each further one after twice the pause, "
        "at most 60 s; 2 passed trials let traffic back, all of it within 5 s"
    )


def test_a_listener_hears_each_change_of_the_breaker(rig: Rig) -> None:
    heard: list[tuple[str, BreakerReport]] = []
    rig.tiers[0].listen_to_breaker(lambda name, report: heard.append((name, report)))
    rig.stores[0].fault = refuse("contains")
    for _ in range(3):
        rig.engine.lookup(TOKENS)

    assert [(name, report.state.value) for name, report in heard] == [("RemoteBackend-0", "open")]


def test_holds_are_shown_by_owner(rig: Rig) -> None:
    rig.storage.set_backend_bypass("RemoteBackend-0", True, owner="operator:b", reason="x", writes=False)
    rig.storage.refuse_new_writes("RemoteBackend-0", owner="operator:a", reason="y")
    first, second = described(rig).holds

    assert (first.owner, first.reads, first.writes, first.draining) == ("operator:a", False, False, True)
    assert (second.owner, second.reason, second.reads, second.writes) == ("operator:b", "x", True, False)


def test_chunks_that_wait_are_counted_until_they_are_written(rig: Rig) -> None:
    gate = Gate("store")
    rig.stores[0].fault = gate
    rig.engine.store(TOKENS, torch.ones(rig.layout.kv_shape(len(TOKENS))))
    assert gate.entered.wait(5)
    waiting = described(rig).waiting_chunks
    gate.open()
    rig.storage.flush()

    assert (waiting, described(rig).waiting_chunks) == (2, 0)


def test_describing_asks_no_store(rig: Rig) -> None:
    gate = Gate("contains", "load", "store", "ping", "delete")
    rig.stores[0].fault = gate
    done = threading.Event()
    threading.Thread(target=lambda: (rig.storage.describe(), done.set()), daemon=True).start()

    assert done.wait(5)
    assert not gate.entered.is_set()


def test_a_backend_that_is_draining_takes_nothing_new_and_is_still_read(rig: Rig) -> None:
    rig.engine.store(TOKENS, torch.ones(rig.layout.kv_shape(len(TOKENS))))
    rig.storage.flush()
    rig.local.clear()
    rig.storage.refuse_new_writes("RemoteBackend-0", owner="operator:a", reason="y")
    rig.engine.store([7] * CHUNK_TOKENS, torch.ones(rig.layout.kv_shape(CHUNK_TOKENS)))
    rig.storage.flush()

    assert rig.engine.lookup(TOKENS) == len(TOKENS)
    assert len(rig.stores[0].frames) == 2
    assert rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason="bypassed") == 1
    assert rig.sample("backend_bypassed", backend="RemoteBackend-0") == 1


def test_a_backend_that_is_not_there_cannot_be_drained(rig: Rig) -> None:
    with pytest.raises(KeyError, match="known: RemoteBackend-0"):
        rig.storage.flush_backend("other", 0.1)
