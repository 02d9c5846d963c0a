"""Chunks that somebody is filling, so that nobody else begins to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence


class FillingChunks:
    """Claims of chunks that are neither kept nor findable yet. Any thread.

    Args:
        missing: Gives the places of digests that are not kept.
    """

    def __init__(self, missing: Callable[[Sequence[bytes]], list[int]]) -> None:
        self._missing = missing
        self._lock = threading.Lock()
        self._digests: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._digests)

    def claim(self, digests: Sequence[bytes]) -> list[int]:
        """Claim those that are neither kept nor claimed; give their places."""
        with self._lock:  # `missing` inside it: who has just kept a chunk gives up its claim afterwards
            places = [place for place in self._missing(digests) if digests[place] not in self._digests]
            self._digests.update(digests[place] for place in places)
        return places

    def give_up(self, digests: Iterable[bytes]) -> None:
        """End claims; those that are none are passed over."""
        with self._lock:
            self._digests.difference_update(digests)
