"""Tenants by the hash of their salt: what each may take of tier 0, and what is told of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from lmcache_core.contracts.control import TenantUsage
from lmcache_core.memory.owner import Owner

DEFAULT_LABEL = "default"
"""Stands for requests without a salt."""

OTHER_LABEL = "other"
"""Stands for all tenants that the configuration does not name, together."""

_LEAST_SWEPT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuota:
    """A tenant that the configuration names.

    Attributes:
        label: Stands for it in metrics and reports.
        salt_hash: From `hash_salt`; ``""`` for requests without a salt. Never shown.
        quota_bytes: Most it may take of tier 0; 0 for no bound.
    """

    label: str
    salt_hash: str
    quota_bytes: int


class _Tally:
    """Counters of one label, and a share that outlives its blocks where the label is one tenant's."""

    def __init__(self, label: str, quota_bytes: int) -> None:
        self.label = label
        self.quota_bytes = quota_bytes
        self.evicted_chunks = 0
        self.refused_blocks = 0
        self.requested_tokens = 0
        self.hit_tokens = 0


class TenantOwner(Owner):
    """A tenant's share, with the counters of its label."""

    __slots__ = ("tally",)

    def __init__(self, tally: _Tally) -> None:
        super().__init__(tally.quota_bytes)
        self.tally = tally


class Tenants:
    """The shares of all tenants. Not safe by itself, but for `looked_up`: tier 0 locks.

    There are as many labels as the configuration names, and two more. A tenant without a label of its
    own is remembered only while it has blocks, so that any number of salts takes no memory.

    Args:
        quotas: Tenants with a label.
        default_quota_bytes: Bound of every tenant that is not among them; 0 for none.
    """

    def __init__(self, quotas: Sequence[TenantQuota] = (), default_quota_bytes: int = 0) -> None:
        self._other = _Tally(OTHER_LABEL, default_quota_bytes)
        named = {"": _Tally(DEFAULT_LABEL, default_quota_bytes)}
        named |= {quota.salt_hash: _Tally(quota.label, quota.quota_bytes) for quota in quotas}
        self._tallies = named
        self._named = {salt_hash: TenantOwner(tally) for salt_hash, tally in named.items()}
        self._unnamed: dict[str, TenantOwner] = {}
        self._sweep_at = _LEAST_SWEPT
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._named) + len(self._unnamed)

    def of(self, salt_hash: str) -> TenantOwner:
        """Give a tenant's share; the same one as long as it has blocks."""
        owner = self._named.get(salt_hash) or self._unnamed.get(salt_hash)
        if owner is None:
            if len(self._unnamed) >= self._sweep_at:
                self._unnamed = {key: one for key, one in self._unnamed.items() if one.used_bytes}
                self._sweep_at = max(_LEAST_SWEPT, 2 * len(self._unnamed))
            owner = self._unnamed[salt_hash] = TenantOwner(self._other)
        return owner

    def looked_up(self, salt_hash: str, *, requested_tokens: int, hit_tokens: int) -> None:
        """Count a lookup. Any thread."""
        tally = self._tallies.get(salt_hash, self._other)
        with self._lock:
            tally.requested_tokens += requested_tokens
            tally.hit_tokens += hit_tokens

    def report(self) -> tuple[TenantUsage, ...]:
        """Tell how each label fares: tenants in the configuration's order, requests without a salt, all others."""
        others = list(self._unnamed.values())
        named = list(self._named.values())
        return (
            *(_usage(owner.tally, owner.used_bytes, owner.chunks) for owner in (*named[1:], named[0])),
            _usage(self._other, sum(one.used_bytes for one in others), sum(one.chunks for one in others)),
        )


def _usage(tally: _Tally, used_bytes: int, chunks: int) -> TenantUsage:
    return TenantUsage(
        label=tally.label,
        bytes_used=used_bytes,
        quota_bytes=tally.quota_bytes,
        chunks=chunks,
        evicted_chunks=tally.evicted_chunks,
        refused_blocks=tally.refused_blocks,
        requested_tokens=tally.requested_tokens,
        hit_tokens=tally.hit_tokens,
    )
