"""Asks a running cache again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmcache_core.cli.cache_page import CachePage
from lmcache_core.errors import LMCacheError


@dataclass(frozen=True, slots=True)
class Seen:
    """What the cache said when it was asked last.

    Attributes:
        answered_s: When it answered last, by the watcher's clock; None for never.
        why: Its explanation.
        transitions: What changed, the newest last.
        problem: Why it does not answer now; ``""`` when it does.
    """

    answered_s: float | None = None
    why: Mapping[str, Any] = field(default_factory=dict)
    transitions: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""


class Watcher:
    """Asks a cache again and again, and remembers its last answer.

    Args:
        cache: Its pages.
        clock: Monotonic seconds.
    """

    def __init__(self, cache: CachePage, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = cache.address
        self._cache = cache
        self._clock = clock
        self.seen = Seen()

    def ask(self) -> Seen:
        """Ask once; a cache that does not answer keeps what it said last."""
        try:
            why = self._cache.read("/health/why", {"healthy": bool, "explanations": list, "state": str})
            history = self._cache.read("/health/history?limit=200", {"transitions": list})
        except LMCacheError as error:
            self.seen = Seen(self.seen.answered_s, self.seen.why, self.seen.transitions, str(error))
        else:
            transitions = tuple(one for one in history["transitions"] if isinstance(one, dict))
            self.seen = Seen(self._clock(), why, transitions)
        return self.seen

    @property
    def age_s(self) -> float | None:
        """Seconds since the last answer."""
        return None if self.seen.answered_s is None else self._clock() - self.seen.answered_s
