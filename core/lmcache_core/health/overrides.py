"""Operators' orders to leave backends out: in force until they end, also across a restart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lmcache_core.contracts.control import StorageControl
from lmcache_core.contracts.report import BackendReport, HoldReport
from lmcache_core.errors import OverrideError
from lmcache_core.health.history import OVERRIDE, History
from lmcache_core.health.line_file import LineFile, wall_time
from lmcache_core.health.override import Override, make_override, read_override
from lmcache_core.health.state_file import StateFile
from lmcache_core.metrics.families import CacheMetrics

log = logging.getLogger(__name__)

_VERSION = 1
_AUDIT_WAIT_S = 1.0


class DrainControl(StorageControl, Protocol):
    """What overrides ask of the storage."""

    def refuse_new_writes(self, name: str, *, owner: str, reason: str) -> None:
        """Take no new chunk for a backend while this owner holds it; write those that wait. Raises KeyError."""

    def flush_backend(self, name: str, timeout_s: float) -> bool:
        """Wait until nothing waits to be written to a backend; False when that takes too long."""


class Overrides:
    """All overrides of one instance, at most one for each backend and owner. Any thread; `drain` waits.

    Each is a hold of its own on the backend, that automation never undoes. Each change is a line in the log, in the
    history and in the audit log, and is in the state file before the call returns.

    Args:
        storage: Where backends are held out.
        history: Where changes are noted.
        metrics: Where they are counted.
        state: Where overrides outlive the process; None for nowhere.
        audit: The audit log; None for none.
        on_change: Told after each change; must not block.
        wall_clock: Seconds since 1970.
    """

    def __init__(
        self,
        *,
        storage: DrainControl,
        history: History,
        metrics: CacheMetrics,
        state: StateFile | None = None,
        audit: LineFile | None = None,
        on_change: Callable[[], None] = lambda: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._storage = storage
        self._history = history
        self._metrics = metrics
        self._state = state
        self._audit = audit
        self._on_change = on_change
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._active: Mapping[tuple[str, str], Override] = {}
        for name in storage.backend_names()[1:]:
            metrics.overrides.labels(name).set(0)

    # -- what operators do ----------------------------------------------------

    def add(
        self,
        backend: str,
        *,
        owner: str,
        reason: str,
        ttl_s: float,
        reads: bool = True,
        writes: bool = True,
        by: str = "",
    ) -> Override:
        """Leave a backend out until the time is over; another order of this owner for it is replaced.

        Args:
            backend: Which.
            owner: Who answers for it.
            reason: One line for people.
            ttl_s: Seconds, 1 to 30 days.
            reads: Whether lookups and loads leave it out.
            writes: Whether stores do.
            by: Who asks, for the audit log; ``""`` for the owner.

        Raises:
            OverrideError: Something about it is wrong, or there is no such backend.
        """
        override = self._made(backend, owner, reason, ttl_s, reads=reads, writes=writes, drain=False)
        with self._lock:
            self._enforce(override)
            self._put(override, by)
        self._on_change()
        return override

    def drain(
        self, backend: str, *, owner: str, reason: str, ttl_s: float, timeout_s: float = 30.0, by: str = ""
    ) -> tuple[Override, bool]:
        """Empty a backend's write-behind queue, then leave it out: new chunks are refused, those that wait are written.

        Reads go on until the queue is empty or the time for that is over.

        Args:
            backend: Which.
            owner: Who answers for it.
            reason: One line for people.
            ttl_s: Seconds, 1 to 30 days.
            timeout_s: Longest to wait for the queue; what waits then is lost, and counted.
            by: Who asks, for the audit log; ``""`` for the owner.

        Returns:
            The override, and whether the queue was empty in time.

        Raises:
            OverrideError: Something about it is wrong, or there is no such backend.
        """
        override = self._made(backend, owner, reason, ttl_s, reads=True, writes=True, drain=True)
        with self._lock:
            self._storage.refuse_new_writes(backend, owner=override.hold_owner, reason=override.reason)
            self._put(override, by)
        flushed = self._storage.flush_backend(backend, timeout_s)
        with self._lock:
            if self._active.get((backend, owner)) is override:  # not removed, replaced or expired meanwhile
                self._enforce(override)
                self._note("drained" if flushed else "drain timed out", override, by)
        self._on_change()
        return override, flushed

    def remove(self, backend: str, *, owner: str, by: str = "") -> Override:
        """End an owner's order for a backend.

        Raises:
            OverrideError: There is none; says whose there are.
        """
        with self._lock:
            override = self._active.get((backend, owner))
            if override is None:
                raise self._nothing_to_remove(backend, owner)
            self._end(override, "removed", by)
        self._on_change()
        return override

    def active(self) -> tuple[Override, ...]:
        """All that are in force, by backend and owner."""
        active = self._active  # replaced, never changed: nobody waits here for a file
        return tuple(active[key] for key in sorted(active))

    # -- what goes on by itself -----------------------------------------------

    def restore(self) -> None:
        """Put what the state file holds in force again; drop what has expired, with a line in the audit log. Once."""
        if self._state is None:
            return
        problem = self._state.open()
        if problem:
            self._complain(f"{problem}; overrides end with this process")
            return
        with self._lock:
            for override in self._read_state():
                self._restore_one(override)
            self._save()

    def expire(self) -> float:
        """End what is over; give the seconds until the next one ends, infinity for none."""
        now_s = self._wall_clock()
        with self._lock:
            over = [override for override in self._active.values() if override.expires_unix_s <= now_s]
            for override in over:
                self._end(override, "expired", "")
            next_s = min((override.left_s(now_s) for override in self._active.values()), default=float("inf"))
        if over:
            self._on_change()
        return next_s

    def annotate(self, backends: Sequence[BackendReport]) -> tuple[BackendReport, ...]:
        """Write into each hold of an override when it ends."""
        now_s = self._wall_clock()
        left_s = {(one.backend, one.hold_owner): one.left_s(now_s) for one in self.active()}

        def dated(backend: BackendReport, hold: HoldReport) -> HoldReport:
            return replace(hold, left_s=left_s.get((backend.name, hold.owner)))

        return tuple(
            replace(backend, holds=tuple(dated(backend, hold) for hold in backend.holds)) if backend.holds else backend
            for backend in backends
        )

    def left_s(self, override: Override) -> float:
        """Seconds until one ends."""
        return override.left_s(self._wall_clock())

    @property
    def none_left(self) -> bool:
        """Whether overrides leave every store behind tier 0 out of reads."""
        return set(self._storage.backend_names()[1:]) <= {one.backend for one in self.active() if one.reads}

    @property
    def persistent(self) -> bool:
        """Whether overrides outlive the process."""
        return self._state is not None and self._state.is_open

    def close(self) -> None:
        """Let go of the files; what is in force stays in the state file."""
        if self._audit is not None:
            self._audit.close()
        if self._state is not None:
            with self._lock:
                self._state.close()

    # -- inside, mostly under the lock ----------------------------------------

    def _made(
        self, backend: str, owner: str, reason: str, ttl_s: float, *, reads: bool, writes: bool, drain: bool
    ) -> Override:
        known = self._storage.backend_names()[1:]
        if backend not in known:
            listed = ", ".join(known) or "none"
            raise OverrideError(f"backend {backend!r} cannot be left out; those that can: {listed}", missing=True)
        return make_override(
            backend=backend,
            owner=owner,
            reason=reason,
            ttl_s=ttl_s,
            reads=reads,
            writes=writes,
            drain=drain,
            now_unix_s=self._wall_clock(),
        )

    def _enforce(self, override: Override) -> None:
        self._storage.set_backend_bypass(
            override.backend,
            True,  # noqa: FBT003 - LMCache's name and order
            owner=override.hold_owner,
            reason=override.reason,
            reads=override.reads,
            writes=override.writes,
        )

    def _put(self, override: Override, by: str) -> None:
        key = (override.backend, override.owner)
        event = "replaced" if key in self._active else "added"
        self._active = {**self._active, key: override}
        self._save()
        self._note(event, override, by)

    def _end(self, override: Override, event: str, by: str) -> None:
        self._storage.set_backend_bypass(override.backend, False, owner=override.hold_owner)  # noqa: FBT003 - LMCache's name and order
        self._active = {key: one for key, one in self._active.items() if one is not override}
        self._save()
        self._note(event, override, by)

    def _nothing_to_remove(self, backend: str, owner: str) -> OverrideError:
        owners = [name for where, name in sorted(self._active) if where == backend]
        whose = f"those of {', '.join(owners)} are" if owners else "none is"
        return OverrideError(f"backend {backend!r} has no override of {owner!r}; {whose} in force", missing=True)

    def _note(self, event: str, override: Override, by: str) -> None:
        self._metrics.overrides.labels(override.backend).set(
            sum(backend == override.backend for backend, _ in self._active)
        )
        who = by or override.owner
        reason = f"{override.what}, operator:{override.owner}: {override.reason}"
        log.warning("override of %s %s by %s: %s", override.backend, event, who, reason)
        self._history.add(OVERRIDE, override.backend, before="", after=event, reason=reason)
        if self._audit is None:
            return
        self._audit.write(
            {"at": wall_time(self._wall_clock()), "event": event, "by": who, **override_as_json(override)}
        )
        if not self._audit.flush(_AUDIT_WAIT_S):
            self._complain(f"the audit log {self._audit.path} did not take a line in time")

    def _save(self) -> None:
        if self._state is None or not self._state.is_open:
            return
        document = {"version": _VERSION, "overrides": [override.as_json() for override in self._active.values()]}
        try:
            self._state.write(document)
        except OSError as error:
            self._complain(
                f"{self._state.path} cannot be written: {error.strerror}; a restart would not know this change"
            )

    def _read_state(self) -> list[Override]:
        assert self._state is not None  # noqa: S101 - restore asked
        try:
            document = self._state.read()
        except (OSError, ValueError) as error:
            self._complain(f"overrides of an earlier process are lost: {error}")
            return []
        if document is None:
            return []
        entries = document.get("overrides") if isinstance(document, dict) else None
        if not isinstance(entries, list) or document.get("version") != _VERSION:
            self._state.set_aside()
            self._complain(f"overrides of an earlier process are lost: {self._state.path} is of another kind")
            return []
        found: list[Override] = []
        for entry in entries:
            try:
                found.append(read_override(entry))
            except ValueError as error:  # noqa: PERF203 - each entry stands for itself
                self._complain(f"an override of an earlier process is lost: {error}")
        return found

    def _restore_one(self, override: Override) -> None:
        if override.expires_unix_s <= self._wall_clock():
            self._note("expired", override, "")
        elif override.backend not in self._storage.backend_names()[1:]:
            self._note("dropped, as the backend is not there any more", override, "")
        else:
            self._enforce(override)
            self._active = {**self._active, (override.backend, override.owner): override}
            self._note("restored", override, "")

    def _complain(self, sentence: str) -> None:
        self._metrics.health_file_errors.inc()
        log.warning("%s", sentence)


def override_as_json(override: Override) -> dict[str, Any]:
    """Give an override as pages and the audit log show it: times for people and for programs."""
    values: Mapping[str, Any] = override.as_json()
    times = {"created": wall_time(override.created_unix_s), "expires": wall_time(override.expires_unix_s)}
    return {**values, **times, "ttl_s": round(override.expires_unix_s - override.created_unix_s, 3)}
