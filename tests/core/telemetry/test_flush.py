"""When the reporter's thread does what; the reporter here only notes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from lmcache_core.telemetry.flush import UsageFlushThread
from lmcache_core.threads import PeriodicThreadRegistry, ThreadLevel


class Noting:
    def __init__(self, while_flushing: Callable[[], object] = lambda: None) -> None:
        self.is_full = False
        self.notes: list[object] = []
        self.noted = threading.Condition()
        self.while_flushing = while_flushing

    def announce(self) -> None:
        self.note("announce")

    def flush(self, timeout_s: float | None = None) -> str:
        self.note(("flush", timeout_s))
        self.while_flushing()
        return ""

    def note(self, what: object) -> None:
        with self.noted:
            self.notes.append(what)
            self.noted.notify_all()

    def wait_for(self, count: int, what: object) -> None:
        with self.noted:
            assert self.noted.wait_for(lambda: self.notes.count(what) >= count, 10), self.notes


def test_it_is_a_registered_thread_of_little_weight() -> None:
    registry = PeriodicThreadRegistry()
    thread = UsageFlushThread(Noting(), interval_s=600.0, registry=registry)
    thread.start()
    found = registry.get("lmcache-usage-continuous")
    thread.stop()

    assert found is thread
    assert thread.level is ThreadLevel.LOW


def test_it_announces_at_once_and_flushes_after_an_interval() -> None:
    reporter = Noting()
    thread = UsageFlushThread(reporter, interval_s=0.05, registry=None, dice=lambda: 0.5)
    started = time.monotonic()
    thread.start()
    reporter.wait_for(1, ("flush", None))
    elapsed_s = time.monotonic() - started
    thread.stop()

    assert reporter.notes[0] == "announce"
    assert elapsed_s >= 0.05


def test_a_wake_up_announces_and_does_not_flush_early() -> None:
    reporter = Noting()
    thread = UsageFlushThread(reporter, interval_s=600.0, registry=None)
    thread.start()
    reporter.wait_for(1, "announce")
    thread.wake()
    reporter.wait_for(2, "announce")

    assert ("flush", None) not in reporter.notes
    thread.stop()


def test_a_full_buffer_flushes_early_in_the_first_interval_too() -> None:
    """D.14"""
    reporter = Noting()
    thread = UsageFlushThread(reporter, interval_s=600.0, registry=None)
    thread.start()
    reporter.wait_for(1, "announce")
    reporter.is_full = True
    thread.wake()
    reporter.wait_for(1, ("flush", None))
    reporter.is_full = False
    thread.stop()


@pytest.mark.parametrize(("dice", "wait_s"), [(0.0, 540.0), (0.5, 600.0), (1.0, 660.0)])
def test_waits_are_spread_over_a_tenth(dice: float, wait_s: float) -> None:
    now_s = 1000.0
    thread = UsageFlushThread(Noting(), interval_s=600.0, registry=None, dice=lambda: dice, clock=lambda: now_s)

    assert thread._next_wait_s() == pytest.approx(wait_s)


def test_stopping_flushes_a_last_time_with_the_time_that_is_left() -> None:
    reporter = Noting()
    thread = UsageFlushThread(reporter, interval_s=600.0, registry=None)
    thread.start()
    assert thread.stop(2.0) is True
    kind, left_s = reporter.notes[-1]  # type: ignore[misc]

    assert kind == "flush"
    assert 0 < left_s <= 2.0


@pytest.mark.timing
def test_stopping_is_bounded_while_a_flush_hangs() -> None:
    go_on = threading.Event()
    reporter = Noting(lambda: go_on.wait(30))
    thread = UsageFlushThread(reporter, interval_s=600.0, registry=None)
    thread.start()
    started = time.monotonic()
    stopped = thread.stop(0.2)
    elapsed_s = time.monotonic() - started
    go_on.set()

    assert stopped is False
    assert elapsed_s < 1.0


def test_after_its_time_it_sends_nothing_late() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        go_on.wait(30)

    reporter = Noting(hang)
    reporter.is_full = True
    thread = UsageFlushThread(reporter, interval_s=600.0, registry=None)
    thread.start()
    assert entered.wait(10)
    thread.stop(0.01)
    reporter.is_full = False
    go_on.set()
    assert thread._thread is not None
    thread._thread.join(10)

    assert reporter.notes == ["announce", ("flush", None)]
