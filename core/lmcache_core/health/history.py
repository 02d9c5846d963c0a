"""What changed, when and why: the last transitions of the system, of each check, backend and breaker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.report import BackendReport, CheckReport, HealthReport, HoldReport
from lmcache_core.health.line_file import LineFile, wall_time
from lmcache_core.metrics.families import CacheMetrics

_LIMIT = 1000

_AT_START = frozenset({HealthState.UNKNOWN.value, "in use"})
"""Where everything starts, which is no change."""

SYSTEM, CHECK, BACKEND, BREAKER, OVERRIDE = "system", "check", "backend", "breaker", "override"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change.

    Attributes:
        number: Counts from 1 since start; a gap means that older ones are forgotten.
        at_unix_s: When, seconds since 1970.
        kind: ``system``, ``check``, ``backend``, ``breaker`` or ``override``.
        name: Of the check or backend; ``""`` for the system.
        before: The state until then; ``""`` for the first.
        after: The state from then on.
        reason: One sentence; ``""`` for none.
        lasted_s: How long the state before had lasted; None where that is not known.
    """

    number: int
    at_unix_s: float
    kind: str
    name: str
    before: str
    after: str
    reason: str
    lasted_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON values, the time in both forms."""
        lasted_s = None if self.lasted_s is None else round(self.lasted_s, 3)
        return {"at": wall_time(self.at_unix_s), **asdict(self), "lasted_s": lasted_s}


class History:
    """The last transitions, in bounded memory, and all of them in a file where one is configured. Any thread.

    Args:
        metrics: Where transitions are counted.
        file: Where they are written as JSON lines; None for nowhere.
        limit: How many are kept.
        wall_clock: Seconds since 1970.
    """

    def __init__(
        self,
        metrics: CacheMetrics,
        file: LineFile | None = None,
        *,
        limit: int = _LIMIT,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._file = file
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._kept: deque[Transition] = deque(maxlen=limit)
        self._number = 0
        self._born_s = wall_clock()
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}

    def observe(self, report: HealthReport) -> None:
        """Note what differs from the report before; for the monitor's thread."""
        self._note(SYSTEM, "", report.state.value, report.reason)
        for check in report.checks:
            self._note(CHECK, check.name, check.state.value, _reason_of(check))
        for backend in report.backends:
            state, reason = traffic_of(backend)
            self._note(BACKEND, backend.name, state, reason)

    def breaker_changed(self, name: str, *, state: str, reason: str) -> None:
        """Note a change of a backend's breaker, on the thread whose call changed it."""
        with self._lock:
            self._seen.setdefault((BREAKER, name), ("closed", self._born_s))
        self._note(BREAKER, name, state.replace("_", "-"), "" if state == "closed" else reason)

    def add(self, kind: str, name: str, *, before: str, after: str, reason: str) -> None:
        """Note something that has no state before it could be compared with, such as an override."""
        with self._lock:
            self._append((kind, name), before=before, after=after, reason=reason)

    def latest(self, limit: int = _LIMIT, *, name: str | None = None) -> list[Transition]:
        """Give the last transitions, the oldest first; of one check or backend where a name is given."""
        with self._lock:
            kept = list(self._kept)
        wanted = [one for one in kept if name is None or one.name == name]
        return wanted[max(0, len(wanted) - limit) :]

    @property
    def total(self) -> int:
        """Transitions since start."""
        return self._number

    def close(self) -> None:
        """Write what waits for the file."""
        if self._file is not None:
            self._file.close()

    def _note(self, kind: str, name: str, state: str, reason: str) -> None:
        with self._lock:
            before, since_s = self._seen.get((kind, name), ("", 0.0))
            if before == state:
                return
            if not before and state in _AT_START:
                self._seen[kind, name] = (state, self._wall_clock())
                return
            since = since_s if before else None
            now_s = self._append((kind, name), before=before, after=state, reason=reason, since_s=since)
            self._seen[kind, name] = (state, now_s)

    def _append(
        self, what: tuple[str, str], *, before: str, after: str, reason: str, since_s: float | None = None
    ) -> float:
        kind, name = what
        now_s = self._wall_clock()
        self._number += 1
        one = Transition(
            number=self._number,
            at_unix_s=now_s,
            kind=kind,
            name=name,
            before=before,
            after=after,
            reason=reason,
            lasted_s=None if since_s is None else max(0.0, now_s - since_s),
        )
        self._kept.append(one)
        self._metrics.health_transitions.labels(kind, name, after).inc()
        if self._file is not None:
            self._file.write(one.as_json())
        return now_s


def history_as_json(transitions: Iterable[Transition], total: int) -> dict[str, Any]:
    """Give transitions as a page shows them."""
    return {"total": total, "transitions": [one.as_json() for one in transitions]}


def traffic_of(backend: BackendReport) -> tuple[str, str]:
    """Say in a word what holds leave of a backend's traffic, and who holds it out."""
    reads = any(hold.reads for hold in backend.holds)
    writes = any(hold.writes or hold.draining for hold in backend.holds)
    word = _TRAFFIC[reads, writes]
    return word, "; ".join(describe_hold(hold) for hold in backend.holds)


def describe_hold(hold: HoldReport) -> str:
    """Say who holds a backend out and why; a check's hold has the check's name, which says it all."""
    return f"{hold.owner}: {hold.reason}" if hold.reason and not hold.owner.startswith("check:") else hold.owner


_TRAFFIC: Mapping[tuple[bool, bool], str] = {
    (False, False): "in use",
    (False, True): "reads only",
    (True, False): "writes only",
    (True, True): "left out",
}


def _reason_of(check: CheckReport) -> str:
    if not check.engaged:
        return check.reason
    return f"{check.reason}; policy {check.policy}" if check.reason else f"policy {check.policy}"
