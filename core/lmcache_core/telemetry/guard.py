"""The border around telemetry: what goes wrong inside is counted and told, and never leaves."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

log = logging.getLogger(__name__)


class TelemetryLosses:
    """What telemetry could not do, by place and by reason. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: Counter[str] = Counter()
        self._samples: Counter[str] = Counter()

    def add_error(self, where: str) -> int:
        """Count an error; give how many there were at this place."""
        with self._lock:
            self._errors[where] += 1
            return self._errors[where]

    def add_samples(self, reason: str, count: int = 1) -> None:
        """Count values that were not kept."""
        with self._lock:
            self._samples[reason] += count

    @property
    def errors(self) -> int:
        """Errors at all places."""
        with self._lock:
            return sum(self._errors.values())

    @property
    def samples(self) -> int:
        """Values not kept, for all reasons."""
        with self._lock:
            return sum(self._samples.values())

    def errors_by_place(self) -> Mapping[str, int]:
        """Errors by place."""
        with self._lock:
            return dict(self._errors)

    def samples_by_reason(self) -> Mapping[str, int]:
        """Values not kept, by reason."""
        with self._lock:
            return dict(self._samples)


@contextmanager
def swallow_telemetry_errors(losses: TelemetryLosses, where: str) -> Iterator[None]:
    """Let nothing that goes wrong inside telemetry reach the cache; count it, and log the first at each place."""
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the border that this function is
        note_telemetry_error(losses, where, error)


def note_telemetry_error(losses: TelemetryLosses, where: str, error: BaseException) -> None:
    """Count an error, and log the first at its place; for code too hot for a context manager."""
    if losses.add_error(where) == 1:
        log.warning("usage telemetry: %s failed; the next errors there are only counted", where, exc_info=error)
