"""Whose blocks they are, and how much of the arena they take."""

from __future__ import annotations

from collections import OrderedDict

from lmcache_core.memory.arena import Account, Block


class Owner(Account):
    """One tenant's share of tier 0.

    Attributes:
        used_bytes: Of the arena, blocks that are leased or being filled included; changed by the arena.
        quota_bytes: Most that they may be; 0 for no bound.
        chunks: That can be found; changed by the index.
        order: Its findable chunks, least recently used first, where it has a quota; else None.
    """

    __slots__ = ("chunks", "order", "quota_bytes")

    def __init__(self, quota_bytes: int = 0) -> None:
        super().__init__()
        self.quota_bytes = quota_bytes
        self.chunks = 0
        self.order: OrderedDict[bytes, Block] | None = OrderedDict() if quota_bytes else None
