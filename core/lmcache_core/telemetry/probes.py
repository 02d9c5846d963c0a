"""What is read of the cache's state when an interval ends, beside what events told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lmcache_core.contracts.message import UsageMessage
from lmcache_core.telemetry.messages import L1UsageMessage, L2ConnectorUsageMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageProbe:
    """Fields of one message that are read, not counted.

    Attributes:
        message: The type.
        missing: What each of the fields says when it could not be read.
        read: Gives one mapping for each combination of the message's tags, tags included. Runs on the
            reporter's thread; may take its time and may raise.
    """

    message: type[UsageMessage]
    missing: Mapping[str, Any]
    read: Callable[[], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUsage:
    """How full one store is.

    Attributes:
        l2_name: URL scheme.
        bytes_used: -1 when not known.
        capacity_bytes: 0 for no bound.
    """

    l2_name: str
    bytes_used: int
    capacity_bytes: int


def memory_probe(read: Callable[[], tuple[int, int]]) -> UsageProbe:
    """Report CPU memory.

    Args:
        read: Gives bytes used and bytes there are.
    """

    def rows() -> Iterable[Mapping[str, Any]]:
        used, capacity = read()
        return ({"bytes_used": used, "capacity_bytes": capacity},)

    return UsageProbe(message=L1UsageMessage, missing={"bytes_used": -1, "capacity_bytes": 0}, read=rows)


def stores_probe(read: Callable[[], Iterable[StoreUsage]]) -> UsageProbe:
    """Report the stores behind CPU memory, those of one scheme together."""
    return UsageProbe(
        message=L2ConnectorUsageMessage,
        missing={"bytes_used": -1, "capacity_bytes": 0, "unbounded_adapters": 0},
        read=lambda: _by_scheme(read()),
    )


def _by_scheme(stores: Iterable[StoreUsage]) -> Iterable[Mapping[str, Any]]:
    kinds: dict[str, list[StoreUsage]] = {}
    for store in stores:
        kinds.setdefault(store.l2_name, []).append(store)
    for name, group in kinds.items():
        known = all(store.bytes_used >= 0 for store in group)
        yield {
            "l2_name": name,
            "bytes_used": sum(store.bytes_used for store in group) if known else -1,
            "capacity_bytes": sum(max(0, store.capacity_bytes) for store in group),
            "unbounded_adapters": sum(store.capacity_bytes <= 0 for store in group),
        }
