"""Who was used how long ago, counted in others used since."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

_LEAST_PLACES = 1024
_EMPTY = -1


class RecencyStack:
    """Items in the order of their last use; tells how many were used after a given one.

    Every use takes the next place on a line; a Fenwick tree counts the places that are still
    somebody's latest. When the line is full, the empty places are taken out. A use and a question
    cost time logarithmic in the number of items. 20 bytes an item. Not thread-safe.

    Items are small whole numbers, such as slots of a table.
    """

    __slots__ = ("_live", "_next", "_oldest", "_place_of", "_slot_at", "_tree")

    def __init__(self) -> None:
        self._place_of = array("i")
        self._live = 0
        self._rebuild(np.empty(0, dtype=np.intc))

    def __len__(self) -> int:
        return self._live

    def use(self, slot: int) -> None:
        """Make an item, new or not, the most recently used."""
        self.drop(slot)
        if self._next == len(self._slot_at):
            self._rebuild(self._in_order())
        while slot >= len(self._place_of):
            self._place_of.append(_EMPTY)
        self._place_of[slot] = self._next
        self._slot_at[self._next] = slot
        self._add(self._next, 1)
        self._next += 1
        self._live += 1

    def drop(self, slot: int) -> None:
        """Take an item out; one that is not there is no error."""
        place = self._place_of[slot] if slot < len(self._place_of) else _EMPTY
        if place == _EMPTY:
            return
        self._place_of[slot] = _EMPTY
        self._slot_at[place] = _EMPTY
        self._add(place, -1)
        self._live -= 1

    def used_since(self, slot: int) -> int:
        """Count the items used after this one, which must be there."""
        tree = self._tree
        index = self._place_of[slot] + 1
        upto = 0
        while index:
            upto += tree[index]
            index &= index - 1
        return self._live - upto

    def oldest(self) -> int | None:
        """Give the least recently used item."""
        if not self._live:
            return None
        while self._slot_at[self._oldest] == _EMPTY:
            self._oldest += 1
        return self._slot_at[self._oldest]

    def _add(self, place: int, change: int) -> None:
        tree = self._tree
        index = place + 1
        end = len(tree)
        while index < end:
            tree[index] += change
            index += index & -index

    def _in_order(self) -> npt.NDArray[np.intc]:
        places: npt.NDArray[np.intc] = np.frombuffer(self._slot_at, dtype=np.intc)
        taken: npt.NDArray[np.intc] = places[places != _EMPTY]
        return taken

    def _rebuild(self, slots: npt.NDArray[np.intc]) -> None:
        live = len(slots)
        size = max(_LEAST_PLACES, 2 * live)
        line = np.full(size, _EMPTY, dtype=np.intc)
        line[:live] = slots
        if live:
            np.frombuffer(self._place_of, dtype=np.intc)[slots] = np.arange(live, dtype=np.intc)
        index = np.arange(size + 1, dtype=np.intc)
        taken = np.minimum(index, live)
        self._tree = array("i", (taken - taken[index & (index - 1)]).tobytes())
        self._slot_at = array("i", line.tobytes())
        self._next = live
        self._oldest = 0
