"""The chunks that the reuse tracker follows, in columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from lmcache_core.telemetry.recency import RecencyStack

_MOST_COUNTED = 0xFFFF_FFFF


class ReuseTable:
    """One row for each tracked chunk. Rows are columns of plain numbers, to keep a chunk below 200 bytes.

    A key is the chunk's identity: 60 bits, so that Python needs two digits for it. Not thread-safe.

    Attributes:
        first_seen_s: By slot; the tracker's time.
        first_reuse_s: By slot; means nothing while `reuse_count` is 0.
        last_access_s: By slot.
        reuse_count: By slot.
        was_stored: By slot; 1 once the cache was seen to hold the chunk.
        recency: Slots by last use.
    """

    __slots__ = (
        "_free",
        "_keys",
        "_slot_of",
        "first_reuse_s",
        "first_seen_s",
        "last_access_s",
        "recency",
        "reuse_count",
        "was_stored",
    )

    def __init__(self) -> None:
        self._slot_of: dict[int, int] = {}
        self._keys = array("Q")
        self._free = array("I")
        self.first_seen_s = array("d")
        self.first_reuse_s = array("d")
        self.last_access_s = array("d")
        self.reuse_count = array("I")
        self.was_stored = bytearray()
        self.recency = RecencyStack()

    def __len__(self) -> int:
        return len(self._slot_of)

    def slots(self) -> Iterator[int]:
        """Give the slots in use."""
        return iter(self._slot_of.values())

    def find(self, key: int) -> int | None:
        """Give the slot of a chunk; None for one that is not tracked."""
        return self._slot_of.get(key)

    def add(self, key: int, now_s: float, *, stored: bool) -> None:
        """Begin to track a chunk that is not tracked yet; it is the most recently used."""
        if self._free:
            slot = self._free.pop()
            self._keys[slot] = key
            self.first_seen_s[slot] = self.first_reuse_s[slot] = self.last_access_s[slot] = now_s
            self.reuse_count[slot] = 0
            self.was_stored[slot] = stored
        else:
            slot = len(self._keys)
            self._keys.append(key)
            for column in (self.first_seen_s, self.first_reuse_s, self.last_access_s):
                column.append(now_s)
            self.reuse_count.append(0)
            self.was_stored.append(stored)
        self._slot_of[key] = slot
        self.recency.use(slot)

    def reuse(self, slot: int, now_s: float, *, stored: bool) -> None:
        """Note another access; the chunk becomes the most recently used."""
        if not self.reuse_count[slot]:
            self.first_reuse_s[slot] = now_s
        if self.reuse_count[slot] < _MOST_COUNTED:
            self.reuse_count[slot] += 1
        self.last_access_s[slot] = now_s
        self.was_stored[slot] |= stored
        self.recency.use(slot)

    def retire(self, slot: int) -> None:
        """Forget a chunk. Its columns keep their values until the slot is taken again."""
        del self._slot_of[self._keys[slot]]
        self.recency.drop(slot)
        self._free.append(slot)
