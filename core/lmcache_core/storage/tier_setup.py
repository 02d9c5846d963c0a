"""Everything a guard needs to know of its store."""

from __future__ import annotations

from dataclasses import dataclass, field

from lmcache_core.contracts.control import HealthOptions
from lmcache_core.storage.breaker import BreakerTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSetup:
    """Everything a guard needs to know of its store.

    Attributes:
        name: Unique among the tiers.
        url: Address without credentials.
        kind: Of store, the scheme of its address; for events.
        options: The store's own health keys.
        connections: Calls at once.
        timeout_s: Longest any call may take, ``blocking_timeout_secs`` or the store's own.
        breaker: When to cut the store off and how to let it back.
        index: Its place behind tier 0, from 0; for events.
    """

    name: str
    url: str
    kind: str
    options: HealthOptions
    connections: int
    timeout_s: float
    breaker: BreakerTerms = field(default_factory=BreakerTerms)
    index: int = 0
