"""A monitor over real tiers, with checks and policies that a test steers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from tests.memory_store import Options, Rig

from lmcache_core import CheckResult, FallbackPolicy, HealthCheck, HealthReport, HealthState, StorageControl
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.manager import StorageManager
from lmcache_core.threads import PeriodicThreadRegistry
from lmcache_plugins.fallback.policy import LocalCPUPolicy, RecomputePolicy

Entry: TypeAlias = tuple[str, str, HealthCheck]
"""A plugin, its distribution, and a check that it brings."""


class SteeredCheck(HealthCheck):
    """Does what the test says; counts its runs."""

    def __init__(self, name: str = "steered", run: Callable[[], object] = lambda: True, **terms: object) -> None:
        self._name = name
        self.run = run
        self.terms = terms
        self.runs = 0
        self.ran = threading.Semaphore(0)

    def name(self) -> str:
        return self._name

    def check(self) -> bool | CheckResult:
        self.runs += 1
        try:
            return self.run()  # type: ignore[return-value]
        finally:
            self.ran.release()

    def await_run(self) -> None:
        assert self.ran.acquire(timeout=10)

    @classmethod
    def create(cls, manager: object) -> list[HealthCheck]:
        return []

    @property
    def fallback_policy(self) -> str:
        return self._term("policy", "recompute")  # type: ignore[return-value]

    def should_skip(self) -> bool:
        return bool(self._term("skip", False))

    def get_bypass_backend_name(self) -> str | None:
        return self._term("backend", None)  # type: ignore[return-value]

    @property
    def interval(self) -> float | None:
        return self._term("interval", None)  # type: ignore[return-value]

    @property
    def timeout(self) -> float | None:
        return self._term("timeout", None)  # type: ignore[return-value]

    @property
    def rise(self) -> int:
        return self._term("rise", 1)  # type: ignore[return-value]

    @property
    def fall(self) -> int:
        return self._term("fall", 1)  # type: ignore[return-value]

    @property
    def jitter(self) -> float:
        return self._term("jitter", 0.0)  # type: ignore[return-value]

    @property
    def initial_delay(self) -> float:
        return self._term("initial_delay", 0.0)  # type: ignore[return-value]

    @property
    def fast_interval(self) -> float | None:
        return self._term("fast_interval", None)  # type: ignore[return-value]

    @property
    def enforce(self) -> bool:
        return self._term("enforce", True)  # type: ignore[return-value]

    @property
    def group(self) -> str:
        return self._term("group", "")  # type: ignore[return-value]

    @property
    def depends_on(self) -> tuple[str, ...]:
        return self._term("depends_on", ())  # type: ignore[return-value]

    @property
    def policy_ladder_secs(self) -> float | None:
        return self._term("policy_ladder_secs", None)  # type: ignore[return-value]

    def _term(self, name: str, default: object) -> object:
        value = self.terms.get(name, default)
        return value() if callable(value) else value


class JournalPolicy(FallbackPolicy):
    """Writes down what it is asked to do, and raises where told."""

    name: ClassVar[str] = "journal"
    keeps_serving: ClassVar[bool] = True

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.broken: set[str] = set()

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        self._do("engage", check)

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        self._do("release", check)

    def _do(self, what: str, check: HealthCheck) -> None:
        if what in self.broken:
            raise RuntimeError(f"cannot {what}")
        self.journal.append(f"{what} {check.name()}")


def entries(made: Sequence[HealthCheck]) -> list[Entry]:
    return [("acme", "acme-checks 2.0", check) for check in made]


class Watchtower:
    """A monitor with all its parts at hand."""

    def __init__(self, rig: Rig, made: list[HealthCheck], brought: Sequence[Entry] = (), **how: object) -> None:
        self.rig = rig
        self.metrics: CacheMetrics = rig.metrics
        self.storage: StorageManager = rig.storage
        self.journal = JournalPolicy()
        self.threads = PeriodicThreadRegistry()
        self.reports: list[HealthReport] = []
        self._changed = threading.Condition()
        parts: dict[str, object] = {
            "policies": {"recompute": RecomputePolicy(), "local_cpu": LocalCPUPolicy(), "journal": self.journal},
            "storage": self.storage,
            "options": Options(ping_interval=0.02, ping_timeout=1.0),
            "tables": (),
            "metrics": self.metrics,
            "on_change": self._note,
            "registry": self.threads,
            "bypassed": self.storage.bypassed,
            "backends": self.storage.describe,
        }
        parts.update(how)
        asked = [Candidate.ask(*entry, parts["options"], parts["tables"]) for entry in brought or entries(made)]  # type: ignore[arg-type]
        self.monitor = HealthMonitor(checks=asked, **parts)  # type: ignore[arg-type]

    def start(self) -> Watchtower:
        self.monitor.start()
        assert self.monitor.wait_first_round(10)
        return self

    def await_report(self, wanted: Callable[[HealthReport], bool], timeout_s: float = 10.0) -> HealthReport:
        """Wait for a change to which `wanted` says yes."""
        found: list[HealthReport] = []

        def here() -> bool:
            found.extend(report for report in self.reports if wanted(report))
            return bool(found)

        with self._changed:
            assert self._changed.wait_for(here, timeout_s), self.monitor.report()
            return found[0]

    def forget(self) -> None:
        """Look only at what changes from now on."""
        with self._changed:
            self.reports.clear()

    def _note(self, report: HealthReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()


MakeTower = Callable[..., Watchtower]


class Hang:
    """A check's body that blocks until released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> bool:
        self.entered.set()
        self.release.wait(30)
        return True


def raising(error: BaseException) -> SteeredCheck:
    """A check that raises."""

    def run() -> bool:
        raise error

    return SteeredCheck(run=run)


def state_of(report: HealthReport, name: str = "steered") -> HealthState:
    """One check's state."""
    return next(check.state for check in report.checks if check.name == name)
