"""Background threads that do one thing again and again, and a registry that tells how they fare."""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmcache_core.contracts.control import ThreadReport

log = logging.getLogger(__name__)

_INTERVALS_UNTIL_INACTIVE = 3  # LMCache's bound for is_active


class ThreadLevel(str, enum.Enum):
    """How much the cache depends on a thread."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class ThreadRunSummary:
    """What one run came to.

    Attributes:
        success: False counts as a failed run.
        message: One sentence for people.
        extra_info: JSON values.
    """

    success: bool
    message: str = ""
    extra_info: Mapping[str, Any] = field(default_factory=dict)


class PeriodicThread(ABC):
    """A daemon thread that calls `_execute` once an interval. Starts once; every method is safe from any thread.

    Whatever `_execute` raises, the thread goes on: the run counts as failed, and the first of a
    streak of equal errors is logged with its traceback.

    Args:
        name: Of the thread; unique in its registry.
        interval_s: Seconds between the end of a run and the next, above 0.
        level: How much depends on it.
        init_wait_s: Seconds before the first run; `wake` ends this wait as well.
        registry: Where `start` enters it and `stop` takes it out; None for nowhere.
        clock: Seconds that never go back.

    Raises:
        ValueError: The interval is not above 0, or the first wait below 0.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        level: ThreadLevel,
        init_wait_s: float = 0.0,
        registry: PeriodicThreadRegistry | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (math.isfinite(interval_s) and interval_s > 0):
            raise ValueError(f"thread {name!r}: interval_s must be a finite number above 0, got {interval_s!r}")
        if not (math.isfinite(init_wait_s) and init_wait_s >= 0):
            raise ValueError(f"thread {name!r}: init_wait_s must be a finite number of at least 0, got {init_wait_s!r}")
        self.name = name
        self.level = level
        self.interval_s = interval_s
        self.init_wait_s = init_wait_s
        self._registry = registry
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._status_lock = threading.Lock()
        self._total_runs = 0
        self._failed_runs = 0
        self._error_runs = 0
        self._last_summary: ThreadRunSummary | None = None
        self._last_seen_s = 0.0
        self._last_error = ""
        self._end_reason = ""

    @abstractmethod
    def _execute(self) -> ThreadRunSummary:
        """Do the work once, on this thread."""

    def _next_wait_s(self) -> float:
        """Seconds until the next run; asked after each run, on this thread."""
        return self.interval_s

    def _on_exit(self) -> None:  # noqa: B027 - most threads have nothing to do here
        """Told on this thread that it ends, whatever ended it."""

    def start(self) -> None:
        """Enter the registry and begin.

        Raises:
            RuntimeError: It was started before, or its name is taken.
        """
        with self._status_lock:
            if self._thread is not None:
                raise RuntimeError(f"thread {self.name!r} was started before; make a new one")
            if self._registry is not None:
                self._registry.register(self)
            self._last_seen_s = self._clock() + self.init_wait_s
            self._thread = thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        try:
            thread.start()
        except BaseException:
            self._thread = None  # the registry shows a dead thread
            raise

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Ask it to end, wait at most so long, and leave the registry.

        Returns:
            False when a run is still going on; it ends after that run.
        """
        self._stopping.set()
        self._awake.set()
        thread = self._thread
        if thread is None:
            return True
        if thread is not threading.current_thread():
            if self._begun.wait(timeout_s):
                thread.join(timeout_s)
            if self.is_running:
                log.warning("thread %s did not end within %.1f s; it ends after its run", self.name, timeout_s)
        if self._registry is not None:
            self._registry.unregister(self)
        return not self.is_running

    def wake(self) -> None:
        """Run now instead of at the end of the wait, the first wait included."""
        self._awake.set()

    def _end(self, reason: str) -> None:
        """End after this run, for good and for a reason that the status shows; stays in the registry."""
        self._end_reason = reason
        self._stopping.set()

    @property
    def stop_requested(self) -> bool:
        """Whether a long run should cut itself short."""
        return self._stopping.is_set()

    @property
    def was_stopped(self) -> bool:
        """Whether it was told to end, and did not give up by itself."""
        return self._stopping.is_set() and not self._end_reason

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive, or just being started: who looks at that moment must not take it for dead."""
        thread = self._thread
        return thread is not None and (not self._begun.is_set() or thread.is_alive())

    @property
    def is_active(self) -> bool:
        """Whether it is alive and ended a run less than three intervals ago."""
        return self.is_running and self._clock() - self._last_seen_s < _INTERVALS_UNTIL_INACTIVE * self.interval_s

    @property
    def silent_s(self) -> float:
        """Seconds since its last run ended, or its first was due; below 0 while that is still to come."""
        return self._clock() - self._last_seen_s

    @property
    def error_runs(self) -> int:
        """Runs that raised."""
        return self._error_runs

    def describe(self) -> ThreadReport:
        """Tell what a health check wants to know."""
        return ThreadReport(
            name=self.name,
            level=self.level.value,
            is_alive=self.is_running,
            silent_s=max(0.0, self.silent_s),
            interval_s=self.interval_s,
            reason=self._end_reason or self._last_error,
        )

    def get_status(self) -> dict[str, Any]:
        """Tell how it fares, as JSON values. `last_run_age_s` is None before the first run ended."""
        with self._status_lock:
            total, failed, summary = self._total_runs, self._failed_runs, self._last_summary
            age_s = self._clock() - self._last_seen_s if total else None
            errors, last_error = self._error_runs, self._last_error
        return {
            "name": self.name,
            "level": self.level.value,
            "interval_s": self.interval_s,
            "is_running": self.is_running,
            "is_active": self.is_active,
            "total_runs": total,
            "failed_runs": failed,
            "error_runs": errors,
            "success_rate": (total - failed) / total if total else 1.0,
            "last_run_age_s": age_s,
            "last_error": last_error,
            "last_summary": None
            if summary is None
            else {"success": summary.success, "message": summary.message, "extra_info": dict(summary.extra_info)},
            "end_reason": self._end_reason,
        }

    def _run(self) -> None:
        self._begun.set()
        try:
            wait_s = self.init_wait_s
            while not self._stopping.is_set():
                if wait_s > 0:
                    self._awake.wait(wait_s)
                self._awake.clear()
                if self._stopping.is_set():
                    return
                wait_s = self._run_once()
        finally:
            self._on_exit()

    def _run_once(self) -> float:
        try:
            summary = self._execute()
            wait_s = self._next_wait_s()
        except BaseException as error:  # noqa: BLE001 - the border of one run: nothing it raises, SystemExit included, may end the thread
            self._note_error(error)
            return self.interval_s
        with self._status_lock:
            self._total_runs += 1
            self._failed_runs += not summary.success
            self._last_summary = summary
            self._last_seen_s = self._clock()
            self._last_error = ""
        return wait_s

    def _note_error(self, error: BaseException) -> None:
        text = describe_error(error)
        with self._status_lock:
            self._total_runs += 1
            self._failed_runs += 1
            self._error_runs += 1
            self._last_summary = ThreadRunSummary(success=False, message=text)
            self._last_seen_s = self._clock()
            repeated, self._last_error = text == self._last_error, text
        if not repeated:
            log.error("thread %s: a run failed with %s; it goes on", self.name, text, exc_info=error)


class PeriodicThreadRegistry:
    """The periodic threads of one cache instance, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, PeriodicThread] = {}

    def register(self, thread: PeriodicThread) -> None:
        """Enter a thread.

        Raises:
            RuntimeError: Another thread has the name.
        """
        with self._lock:
            if self._threads.setdefault(thread.name, thread) is not thread:
                raise RuntimeError(
                    f"thread name {thread.name!r} is taken; stop that thread first or choose another name"
                )

    def unregister(self, thread: PeriodicThread) -> None:
        """Take a thread out; another one of the same name stays."""
        with self._lock:
            if self._threads.get(thread.name) is thread:
                del self._threads[thread.name]

    def get(self, name: str) -> PeriodicThread | None:
        """Find a thread by name."""
        with self._lock:
            return self._threads.get(name)

    def threads(self) -> list[PeriodicThread]:
        """All threads, by name."""
        with self._lock:
            return [self._threads[name] for name in sorted(self._threads)]

    def reports(self) -> list[ThreadReport]:
        """Each thread's `describe`, by name; without those that have ended as they were told to."""
        reports = [(thread, thread.describe()) for thread in self.threads()]
        return [report for thread, report in reports if report.is_alive or not thread.was_stopped]

    def statuses(self) -> list[dict[str, Any]]:
        """Each thread's `get_status`, by name."""
        return [thread.get_status() for thread in self.threads()]


def describe_error(error: BaseException) -> str:
    """Name an error's type and text; never raises, whatever the error's own ``__str__`` does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the text is a third party's code and only decoration here
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
