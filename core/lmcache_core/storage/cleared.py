"""What a clear did, tier by tier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What a clear did to one tier.

    Attributes:
        backend: The tier.
        chunks: Chunks no longer found; -1 where the tier cannot be cleared safely.
        leased: How many of them a reader still holds; their memory comes free when it lets go.
        reason: Why the tier was left alone; ``""`` if it was not.
    """

    backend: str
    chunks: int
    leased: int = 0
    reason: str = ""
