"""Which of a check's policies answers for it now."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Ladder:
    """Climbs from one policy to the next while a check fails; never down before the check has passed.

    The next rung is due when the failure has lasted for its time on this one, or at once when this one
    does not help with what fails now. On the last rung it stays.
    """

    def __init__(self) -> None:
        self._rung = -1
        self._since_s = 0.0

    def choose(self, rungs: Sequence[str], *, helps: Callable[[str], bool], lasting_s: float, now_s: float) -> str:
        """Give the policy to use now.

        Args:
            rungs: Names of policies, at least one.
            helps: Tells whether a policy answers what fails now.
            lasting_s: Seconds that one rung may last.
            now_s: The time.
        """
        last = len(rungs) - 1
        rung = min(max(self._rung, 0), last)
        if self._rung >= 0 and now_s - self._since_s >= lasting_s:
            rung = min(rung + 1, last)
        while rung < last and not helps(rungs[rung]):
            rung += 1
        if rung != self._rung:
            self._rung, self._since_s = rung, now_s
        return rungs[rung]

    def next_move_s(self, rungs: Sequence[str], lasting_s: float) -> float:
        """When `choose` may give another one although nothing else changes."""
        if not 0 <= self._rung < len(rungs) - 1:
            return float("inf")
        return self._since_s + lasting_s

    def reset(self) -> None:
        """Begin at the first rung the next time."""
        self._rung = -1
