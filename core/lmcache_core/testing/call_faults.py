"""What can go wrong in a call of a store: records that `FaultyBackend` puts in force."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from lmcache_core.errors import BackendError


class Call(enum.Flag):
    """Calls of a store; join them with ``|``."""

    CONTAINS = enum.auto()
    LOAD = enum.auto()
    STORE = enum.auto()
    DELETE = enum.auto()
    PING = enum.auto()
    ALL = CONTAINS | LOAD | STORE | DELETE | PING


def _fail() -> BaseException:
    return BackendError("the faulty store was told to fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chance:
    """How often a fault happens.

    Attributes:
        probability: Of each call or, for faults of single chunks, of each chunk.
    """

    probability: float = 1.0

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability must be from 0 to 1, got {self.probability}")


@dataclass(frozen=True, slots=True)
class CallError(_Chance):
    """A call raises, before the store is asked.

    Attributes:
        error: Makes what is raised; a class will do: ``BackendFullError``, ``SystemExit``.
        calls: Which.
    """

    error: Callable[[], BaseException] = _fail
    calls: Call = Call.ALL


@dataclass(frozen=True, slots=True)
class CallDelay(_Chance):
    """A call takes longer, whatever its deadline.

    Attributes:
        delay_s: Seconds; a hang that is released ends it too.
        jitter_s: Up to so many more.
        calls: Which.
    """

    delay_s: float
    jitter_s: float = 0.0
    calls: Call = Call.ALL


@dataclass(frozen=True, slots=True)
class CallHang(_Chance):
    """A call does not return, whatever its deadline, until other faults are in force; then the store is asked.

    Attributes:
        calls: Which.
    """

    calls: Call = Call.ALL


@dataclass(frozen=True, slots=True)
class LoadMiss(_Chance):
    """A chunk that `contains` promised is gone when it is loaded."""

    calls: Call = field(default=Call.LOAD, init=False)


@dataclass(frozen=True, slots=True)
class LoadFailure(_Chance):
    """A chunk cannot be read, and the store says so: `LoadResult.FAILED`."""

    calls: Call = field(default=Call.LOAD, init=False)


@dataclass(frozen=True, slots=True)
class LoadCorruption(_Chance):
    """One byte of a loaded chunk is wrong, at a place that the seed decides, and the store does not know."""

    calls: Call = field(default=Call.LOAD, init=False)


@dataclass(frozen=True, slots=True)
class LoadTruncation(_Chance):
    """Only the first bytes of a chunk are loaded, zeros behind them, and the store does not know.

    Attributes:
        share: Of the chunk, from 0 to 1.
    """

    share: float = 0.5
    calls: Call = field(default=Call.LOAD, init=False)


@dataclass(frozen=True, slots=True)
class StoreCut(_Chance):
    """A call stores the first chunks and raises `BackendError` in place of the others.

    Attributes:
        chunks: How many are stored.
    """

    chunks: int = 1
    calls: Call = field(default=Call.STORE, init=False)


CallFault: TypeAlias = (
    CallError | CallDelay | CallHang | LoadMiss | LoadFailure | LoadCorruption | LoadTruncation | StoreCut
)
"""Any of them."""
