"""Counts failures over the last seconds, however often it is asked."""

from __future__ import annotations

from collections import deque

_SAMPLES_PER_WINDOW = 100  # bounds the memory of a window that is asked many times a second
_TOLERANCE = 0.95  # a run may come a little early; its predecessor still closes the window


class FailureWindow:
    """How much a growing count has grown over the last `length_s`.

    A monitor that is woken by every failure asks after each single one; counting "since the last
    run" would then never reach a threshold.

    Args:
        length_s: Of the window, above 0.
        count: The count now.
        now_s: The time now.
    """

    def __init__(self, length_s: float, count: int, now_s: float) -> None:
        self._length_s = length_s
        self._samples: deque[tuple[float, int]] = deque([(now_s, count)])

    def growth(self, count: int, now_s: float) -> int:
        """Note the count and tell how much of it is of the window."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now_s - _TOLERANCE * self._length_s:
            samples.popleft()
        grown = count - samples[0][1]
        if now_s - samples[-1][0] >= self._length_s / _SAMPLES_PER_WINDOW:
            samples.append((now_s, count))
        return grown

    def restart(self, count: int, now_s: float) -> None:
        """Forget what was before."""
        self._samples = deque([(now_s, count)])
