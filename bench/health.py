"""What health costs the data path, and what one hanging check costs the others.

Every figure is a ratio or a delay within one run. Ends with 1 when a bound is broken.
Run: ``make bench`` or ``python bench/health.py``.
"""

from __future__ import annotations

import itertools
import pathlib
import statistics
import sys
import threading
import time
import timeit
from collections.abc import Callable, Mapping, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))  # the real server of the tests

from tests.outage import DEADLINE_S, measure_hang, measure_outage
from tests.redis_server import RedisServer

from lmcache_core import FallbackPolicy, HealthCheck, StorageControl
from lmcache_core.config.model import ExtraConfig
from lmcache_core.contracts.control import Hold
from lmcache_core.events.bus import EventBus
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.threads import PeriodicThreadRegistry

CALLS = 200_000
ROUNDS = 7
INTERVAL_S = 0.02
RUNS = 100
MOST_CALLS_OF_AN_EMPTY_METHOD = 2.0
MOST_DELAY_MS = 50.0
MOST_OF_A_DEADLINE = 1.1
"""A thread that is told to wake at the deadline still has to get its turn."""


class Empty:
    """The yardstick."""

    def call(self) -> bool:
        """Do nothing."""
        return True


class Recompute(FallbackPolicy):
    """Do nothing."""

    name = "recompute"
    keeps_serving = False

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Do nothing."""

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Do nothing."""


class NoStorage:
    """No tiers."""

    def backend_names(self) -> Sequence[str]:
        """Only tier 0."""
        return ["LocalCPUBackend"]

    def set_backend_bypass(
        self, name: str, bypassed: bool, *, owner: str, reason: str = "", reads: bool = True, writes: bool = True
    ) -> None:
        """Never asked."""

    def holds(self, name: str) -> Mapping[str, Hold]:
        """Nobody holds anything."""
        del name
        return {}

    def serving(self) -> Sequence[str]:
        """Only tier 0."""
        return self.backend_names()

    def hold_hot_cache(self, *, owner: str) -> None:
        """Never asked."""

    def release_hot_cache(self, *, owner: str) -> int:
        """Never asked."""
        del owner
        return 0


class Check(HealthCheck):
    """Notes when it runs, then does what it is told."""

    def __init__(self, name: str, then: Callable[[], object] = lambda: None) -> None:
        self._name = name
        self._then = then
        self.starts_s: list[float] = []

    def name(self) -> str:
        """As told."""
        return self._name

    def check(self) -> bool:
        """Pass, in the end."""
        self.starts_s.append(time.perf_counter())
        self._then()
        return True

    @property
    def interval(self) -> float:
        """Short."""
        return INTERVAL_S

    @classmethod
    def create(cls, manager: object) -> list[HealthCheck]:
        """Not used here."""
        del manager
        return []


def build(*checks: HealthCheck) -> HealthMonitor:
    """A monitor of some checks."""
    options = ExtraConfig()
    return HealthMonitor(
        checks=[Candidate.ask("bench", "bench", check, options, ()) for check in checks],
        policies={"recompute": Recompute()},
        storage=NoStorage(),
        options=options,
        metrics=CacheMetrics(),
        on_change=lambda _report: None,
        registry=PeriodicThreadRegistry(),
    )


def in_empty_calls(call: Callable[[], object], calls: int = CALLS) -> float:
    """Cost of a call as a multiple of an empty method's, median over alternating rounds."""
    ratios = []
    for _ in range(ROUNDS):
        empty = timeit.timeit("call()", globals={"call": Empty().call}, number=calls)
        ratios.append(timeit.timeit("call()", globals={"call": call}, number=calls) / empty)
    return statistics.median(ratios)


def latenesses_ms(hanging: int) -> list[float]:
    """By how much a quick check's runs come later than its interval, beside so many that hang."""
    release = threading.Event()
    quick = Check("quick")
    monitor = build(quick, *(Check(f"hanging-{number}", release.wait) for number in range(hanging)))
    monitor.start()
    while len(quick.starts_s) <= RUNS:
        time.sleep(INTERVAL_S)
    monitor.stop()
    release.set()
    starts_s = quick.starts_s[: RUNS + 1]
    gaps_s = [after - before for before, after in itertools.pairwise(starts_s)]
    return sorted(max(0.0, gap_s - INTERVAL_S) * 1000 for gap_s in gaps_s)


def print_outages() -> bool:
    """What a frozen server costs; tell whether every bound holds."""
    with RedisServer() as server:
        hang = measure_hang(server)
    with RedisServer() as server:
        outage = measure_outage(server, outage_s=5.0)
    print(f"first failing call to bypass     {hang.bypass_s / DEADLINE_S:7.2f} deadlines (at most 1), interval 30 s")
    print(f"first call to a hung store       {hang.first_call_s / DEADLINE_S:7.2f} deadlines (at most 1)")
    print(f"the longest of 100 later calls   {hang.later_calls_s * 1000:7.2f} ms")
    print(f"first failing call to policy     {hang.gate_s:7.2f} s, ping timeout 0.2 s")
    print(f"an outage of {outage.outage_s:.1f} s costs          {outage.lost_s:7.2f} s (at most {outage.bound_s:.1f})")
    late = max(hang.bypass_s, hang.first_call_s) > DEADLINE_S * MOST_OF_A_DEADLINE
    return not late and outage.lost_s <= outage.bound_s


def main() -> int:
    monitor = build(Check("one"), Check("other"))
    monitor.start()
    monitor.wait_first_round(5)
    gate = in_empty_calls(monitor.is_healthy)
    report = in_empty_calls(monitor.report, calls=2000)
    wake = in_empty_calls(monitor.wake, calls=20_000)
    monitor.stop()
    bus = EventBus(CacheMetrics())
    publish = in_empty_calls(lambda: bus.publish("bench.event"))
    wrapper = in_empty_calls(lambda: Empty.call(None))  # type: ignore[arg-type]
    print(f"is_healthy()                     {gate:7.2f} empty method calls (at most {MOST_CALLS_OF_AN_EMPTY_METHOD})")
    print(f"publish() without a subscriber   {publish / wrapper:7.2f} empty calls from a lambda")
    print(f"wake()                           {wake:7.1f} empty method calls")
    print(f"report() of two checks           {report:7.0f} empty method calls")
    alone, beside_one, beside_many = (latenesses_ms(hanging) for hanging in (0, 1, 20))
    for title, late_ms in (("alone", alone), ("beside 1 that hangs", beside_one), ("beside 20 that hang", beside_many)):
        print(
            f"a check {title:<20} starts late by {statistics.median(late_ms):5.1f} ms (median), "
            f"{late_ms[int(len(late_ms) * 0.99) - 1]:5.1f} ms (99th percentile)"
        )
    delay_ms = statistics.median(beside_many) - statistics.median(alone)
    print(f"delay by hanging checks          {delay_ms:7.1f} ms (at most {MOST_DELAY_MS:.0f})")
    outages_hold = print_outages()
    return int(not outages_hold or gate > MOST_CALLS_OF_AN_EMPTY_METHOD or delay_ms > MOST_DELAY_MS)


if __name__ == "__main__":
    sys.exit(main())
