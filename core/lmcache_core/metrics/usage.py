"""What usage telemetry sent and lost, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class SentView(Protocol):
    """What a scrape reads of what was sent."""

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Messages by type and outcome."""


class LossesView(Protocol):
    """What a scrape reads of what was lost."""

    def errors_by_place(self) -> Mapping[str, int]:
        """Errors by place."""

    def samples_by_reason(self) -> Mapping[str, int]:
        """Values not kept, by reason."""


class UsageCollector(Collector):
    """Counts usage telemetry; registered only where it is on. Any thread may scrape.

    Args:
        sent: Messages.
        losses: Errors and values.
    """

    def __init__(self, sent: SentView, losses: LossesView) -> None:
        self._sent = sent
        self._losses = losses

    def collect(self) -> Iterable[Metric]:
        """Read all counts now."""
        messages = CounterMetricFamily(
            "lmcache:usage_messages", "Usage messages, by what became of them", labels=("message", "outcome")
        )
        for (message, outcome), count in sorted(self._sent.counts().items()):
            messages.add_metric((message, outcome), count)
        errors = CounterMetricFamily(
            "lmcache:usage_errors", "Errors inside usage telemetry, by place", labels=("place",)
        )
        for place, count in sorted(self._losses.errors_by_place().items()):
            errors.add_metric((place,), count)
        samples = CounterMetricFamily(
            "lmcache:usage_dropped_samples", "Values of usage metrics that were not kept", labels=("reason",)
        )
        for reason, count in sorted(self._losses.samples_by_reason().items()):
            samples.add_metric((reason,), count)
        return (messages, errors, samples)
