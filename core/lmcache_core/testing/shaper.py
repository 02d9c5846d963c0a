"""Decides what becomes of the bytes of one direction of one connection."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from lmcache_core.testing.network_faults import Corrupt, Cut, Drip, Hang, Latency, NetworkFault, Way

_TICK_S = 0.02
"""What trickles is sent about so often."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A fault in force. `number` is its own: the same fault put in force again counts its bytes anew."""

    number: int
    fault: NetworkFault


@dataclass(slots=True)
class Piece:
    """Bytes that wait to be passed on.

    Attributes:
        data: Empty at the end of the stream.
        arrived_s: When.
        noted: Numbers of the faults that were counted for it.
    """

    data: bytes
    arrived_s: float
    noted: set[int]


@dataclass(frozen=True, slots=True)
class Move:
    """What to do next with a piece: pass its first bytes on, then wait, then perhaps end the connection.

    Attributes:
        data: To pass on, changed where it is corrupted; empty for nothing.
        wait_s: Then; None until the faults change.
        ends: `Cut` whose time has come.
        faults: Those to count.
    """

    data: bytes = b""
    wait_s: float | None = 0.0
    ends: Cut | None = None
    faults: tuple[NetworkFault, ...] = ()


class Shaper:
    """Applies the faults that only need to see bytes: latency, hang, drip, cut, corrupt.

    What it decides depends on the seed and the bytes' places alone, but for latency's jitter, which is
    drawn for each piece.

    Args:
        way: Which direction this is.
        seed: Text that no other direction and connection has.
    """

    def __init__(self, way: Way, seed: str) -> None:
        self._way = way
        self._seed = seed
        self._jitter = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._passed_bytes: dict[int, int] = {}

    def next(self, piece: Piece, applied: Sequence[Applied], now_s: float) -> Move:
        """Decide the next move; the bytes of a move count as passed."""
        mine = [one for one in applied if self._way in getattr(one.fault, "way", Way(0))]
        self._passed_bytes = {one.number: self._passed_bytes.get(one.number, 0) for one in mine}
        limit_bytes = len(piece.data)
        noted: list[NetworkFault] = []
        for number, fault in ((one.number, one.fault) for one in mine):
            if isinstance(fault, Latency):
                wait_s = self._lateness_s(number, fault, piece, now_s)
                if wait_s > 0:
                    return Move(wait_s=wait_s, faults=self._note(number, fault, piece))
            elif isinstance(fault, (Hang, Cut)):
                left_bytes = fault.after_bytes - self._passed_bytes[number]
                limit_bytes = min(limit_bytes, max(0, left_bytes))
            elif isinstance(fault, Drip):
                noted += self._note(number, fault, piece)
                limit_bytes = min(limit_bytes, max(1, int(fault.bytes_per_s * _TICK_S)))
        data, flipped = self._corrupt(piece.data[:limit_bytes], mine)
        for number in self._passed_bytes:
            self._passed_bytes[number] += len(data)
        return self._after(data, piece, mine, [*noted, *flipped])

    def _after(self, data: bytes, piece: Piece, mine: Sequence[Applied], faults: list[NetworkFault]) -> Move:
        """What follows the bytes that go now."""
        pause_s = 0.0
        for number, fault in ((one.number, one.fault) for one in mine):
            if isinstance(fault, Cut) and self._passed_bytes[number] >= fault.after_bytes:
                return Move(data, ends=fault, faults=(*faults, fault))
            if isinstance(fault, Hang) and not data and self._passed_bytes[number] >= fault.after_bytes:
                return Move(wait_s=None, faults=(*faults, *self._note(number, fault, piece)))
            if isinstance(fault, Drip):
                pause_s = max(pause_s, len(data) / fault.bytes_per_s)
        return Move(data, pause_s, faults=tuple(faults))

    def _lateness_s(self, number: int, fault: Latency, piece: Piece, now_s: float) -> float:
        if number in piece.noted:  # it has waited already
            return 0.0
        return piece.arrived_s + fault.delay_s + self._jitter.uniform(0.0, fault.jitter_s) - now_s

    def _corrupt(self, data: bytes, mine: Sequence[Applied]) -> tuple[bytes, list[NetworkFault]]:
        changed, faults = bytearray(), list[NetworkFault]()
        for number, fault in ((one.number, one.fault) for one in mine):
            if not isinstance(fault, Corrupt):
                continue
            for place, mask in self._flips(number, fault, len(data)):
                changed = changed or bytearray(data)
                changed[place] ^= mask
                faults.append(fault)
        return bytes(changed) or data, faults

    def _flips(self, number: int, fault: Corrupt, size_bytes: int) -> list[tuple[int, int]]:
        begin = self._passed_bytes[number]
        if fault.every_bytes:
            runs = range(begin // fault.every_bytes, -(-(begin + size_bytes) // fault.every_bytes))
        else:
            runs = range(1)
        flips = []
        for run in runs:
            draw = random.Random(f"{self._seed}/{run}")  # noqa: S311 - reproducible, not secret
            place = (
                run * fault.every_bytes + draw.randrange(fault.every_bytes) if fault.every_bytes else fault.offset_bytes
            )
            if begin <= place < begin + size_bytes:
                flips.append((place - begin, draw.randrange(1, 256)))
        return flips

    @staticmethod
    def _note(number: int, fault: NetworkFault, piece: Piece) -> tuple[NetworkFault, ...]:
        if number in piece.noted:
            return ()
        piece.noted.add(number)
        return (fault,)
