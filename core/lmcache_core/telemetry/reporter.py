"""Turns events into messages, a round of them each interval."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lmcache_core.contracts.event import Event, EventSubscriber, EventType
from lmcache_core.contracts.message import REPORTER_FIELDS, ContinuousContextMessage, UsageMessage
from lmcache_core.contracts.metric import MetricSpec
from lmcache_core.telemetry.collect import SampleCollector, Taken
from lmcache_core.telemetry.guard import TelemetryLosses, swallow_telemetry_errors
from lmcache_core.telemetry.models import KnownModels
from lmcache_core.telemetry.outbox import BAD_VALUE, UNREACHABLE, Outbox
from lmcache_core.telemetry.probes import UsageProbe
from lmcache_core.telemetry.round import MessageRound
from lmcache_core.telemetry.samples import MAX_BUFFERED_SAMPLES, MessageSamples, check_cover

_SOURCE_FIELDS = frozenset({"sequence_number", "uptime_seconds", "active_seconds"})
_MOST_PENDING = 256


class MPContinuousUsageReporter(EventSubscriber):
    """Maps events to values as they come, reduces them to messages at each flush, and sends each once.

    Events come on the bus's thread and are mapped in batches; `announce` and `flush` are called by
    `UsageFlushThread`. A message that cannot be sent is dropped, never retried; the next one that
    arrives says how many intervals are missing and why.

    Args:
        specs: Of all messages.
        outbox: Sends.
        losses: What telemetry could not do.
        probes: What is read when an interval ends.
        sources: Give further messages at each flush; see `EventSubscriber.usage_messages`.
        first_messages: Make what is sent once, at the start; each may take its time and may raise.
        max_buffered_samples: Most values kept for one field, where they cannot be folded.
        clock: Monotonic seconds.

    Raises:
        ValueError: Specs and probes do not fill each field of a message once.
    """

    def __init__(
        self,
        specs: Sequence[MetricSpec],
        *,
        outbox: Outbox,
        losses: TelemetryLosses,
        probes: Sequence[UsageProbe] = (),
        sources: Sequence[EventSubscriber] = (),
        first_messages: Sequence[Callable[[], UsageMessage]] = (),
        max_buffered_samples: int = MAX_BUFFERED_SAMPLES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_buffered_samples < 1:
            raise ValueError(f"max_buffered_samples must be at least 1, got {max_buffered_samples}")
        self._outbox = outbox
        self._losses = losses
        self._sources = tuple(sources)
        self._first_messages = list(first_messages)
        self._clock = clock
        self._models = KnownModels()
        self._rounds = [
            MessageRound(message, probe, self._models) for message, probe in _messages(specs, probes).items()
        ]
        self._tells_losses = any(each.message is ContinuousContextMessage for each in self._rounds)
        self._collector = SampleCollector(
            _groups(self._rounds, specs, max_buffered_samples), losses, on_full=self._note_full
        )
        self._pending: deque[UsageMessage] = deque(maxlen=_MOST_PENDING)
        self._wake: Callable[[], None] = _do_nothing
        self._stop: Callable[[], object] = _do_nothing
        self._full = threading.Event()
        self._sequence = 0
        self._lost_events = 0
        self._lost_intervals = 0
        self._gap_reason = ""
        self._told = self._totals()
        self._started_s = self._flushed_s = clock()

    def attach(self, *, wake: Callable[[], None], stop: Callable[[], object]) -> None:
        """Tell the reporter how to wake its thread, and how to end it with a last flush."""
        self._wake, self._stop = wake, stop

    # -- on the bus's thread ----------------------------------------------------

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        """Subscribe to every kind of event that a spec wants, and to registrations of models."""
        wanted: dict[EventType | str, Callable[[Event], None]] = {
            kind: feed.add for kind, feed in self._collector.feeds.items()
        }
        wanted[EventType.MP_KV_REGISTERED] = self._on_registered
        return wanted

    def events_lost(self, count: int) -> None:
        """Count events that this reporter will never see, for the next report."""
        self._lost_events += count

    def shutdown(self) -> None:
        """Flush a last time, within `FINAL_FLUSH_S`."""
        self._stop()

    def _on_registered(self, event: Event) -> None:
        with swallow_telemetry_errors(self._losses, "model registration"):
            message = self._models.register(event)
            if message is not None:
                self._pending.append(message)
                self._wake()
        feed = self._collector.feeds.get(event.event_type)
        if feed is not None:
            feed.add(event)

    def _note_full(self) -> None:
        if not self._full.is_set():
            self._full.set()
            self._wake()

    # -- on the flush thread ----------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether a buffer is full before the interval ends."""
        return self._full.is_set()

    def announce(self) -> None:
        """Send what is sent once: the first messages, and each model's when it registers."""
        while self._first_messages:
            with swallow_telemetry_errors(self._losses, "first messages"):
                self._pending.append(self._first_messages.pop(0)())
        while self._pending:
            if self._outbox.send(self._pending.popleft()) in UNREACHABLE:
                self._pending.clear()

    def flush(self, timeout_s: float | None = None) -> str:
        """End the interval and send its messages.

        Args:
            timeout_s: For all of them together; None for each sender's own for each.

        Returns:
            ``""``, or the first reason why a message did not arrive.
        """
        deadline_s = None if timeout_s is None else self._clock() + timeout_s
        taken = self._collector.take()
        totals = self._totals()  # after the last events were mapped
        messages = list(self._end_interval(taken, totals))
        reasons: dict[str, str] = {}
        for message in messages:
            left_s = None if deadline_s is None else deadline_s - self._clock()
            late = left_s is not None and left_s <= 0
            reason = "timeout" if late else self._outbox.send(message, left_s)
            reasons.setdefault(type(message).__name__, reason)
            if reason in UNREACHABLE:
                break
        if self._tells_losses:
            reasons.setdefault(ContinuousContextMessage.__name__, BAD_VALUE)  # it could not even be made
        failed = next(filter(None, reasons.values()), "")
        self._note_outcome(reasons.get(ContinuousContextMessage.__name__, failed), totals)
        return failed

    def preview(self) -> list[UsageMessage]:
        """Give what `announce` and `flush` would send now; for a reporter that is never started."""
        for make in self._first_messages:
            with swallow_telemetry_errors(self._losses, "first messages"):
                self._pending.append(make())
        return [*self._pending, *self._end_interval(self._collector.take(), self._totals())]

    def _end_interval(self, taken: Sequence[Taken], totals: Mapping[str, int]) -> Iterator[UsageMessage]:
        now_s = self._clock()
        stamps: dict[str, Any] = {
            "sequence_number": self._sequence,
            "uptime_seconds": now_s - self._started_s,
            "active_seconds": now_s - self._flushed_s,
            "lost_intervals": self._lost_intervals,
            "gap_reason": self._gap_reason,
            "sample_rate": 1.0,
            **{name: total - self._told[name] for name, total in totals.items()},
        }
        self._sequence += 1
        self._flushed_s = now_s
        self._full.clear()
        found = {group.message: (group.specs, values) for group, values in taken}
        for each in self._rounds:
            specs, values = found.get(each.message, ((), []))
            with swallow_telemetry_errors(self._losses, each.message.__name__):
                yield from list(each.messages(specs, values, stamps, self._losses))
        for source in self._sources:
            with swallow_telemetry_errors(self._losses, type(source).__name__):
                yield from [_stamped(message, stamps) for message in source.usage_messages()]

    def _note_outcome(self, reason: str, totals: Mapping[str, int]) -> None:
        if reason:
            self._lost_intervals += 1
            self._gap_reason = reason
        else:
            self._lost_intervals, self._gap_reason, self._told = 0, "", totals

    def _totals(self) -> Mapping[str, int]:
        return {
            "dropped_events": self._lost_events,
            "dropped_samples": self._losses.samples,
            "swallowed_errors": self._losses.errors,
        }


def _messages(specs: Iterable[MetricSpec], probes: Iterable[UsageProbe]) -> dict[type[UsageMessage], UsageProbe | None]:
    """Every type of message, the one that tells of losses first, each with its probe."""
    types = sorted({spec.message for spec in specs}, key=_place)
    found: dict[type[UsageMessage], UsageProbe | None] = dict.fromkeys(types)
    found.update((probe.message, probe) for probe in probes)
    return found


def _groups(rounds: Iterable[MessageRound], specs: Sequence[MetricSpec], limit: int) -> list[MessageSamples]:
    """Give the samples of every message that has specs; raises ValueError where a message is not covered exactly."""
    groups = []
    for each in rounds:
        own = [spec for spec in specs if spec.message is each.message]
        check_cover(each.message, own, each.probed)
        if own:
            groups.append(MessageSamples(each.message, own, limit))
    return groups


def _place(message: type[UsageMessage]) -> tuple[bool, str]:
    return (message is not ContinuousContextMessage, message.__name__)


def _stamped(message: UsageMessage, stamps: Mapping[str, Any]) -> UsageMessage:
    names = {found.name for found in dataclasses.fields(message)} & _SOURCE_FIELDS & REPORTER_FIELDS
    return dataclasses.replace(message, **{name: stamps[name] for name in names})


def _do_nothing() -> None:
    """Stand in for a thread that is not there yet."""
