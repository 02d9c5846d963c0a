"""One operator's order to leave a backend out for a while, checked where it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lmcache_core.errors import OverrideError

LONGEST_TTL_S = 30 * 86_400.0
"""An order without an end is forgotten, so there is none: renew it."""

_LEAST_TTL_S = 1.0
_LONGEST_REASON = 500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+\-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An order in force. Its hold on the backend has the owner ``operator:<owner>``.

    Attributes:
        backend: Which.
        owner: Who answers for it: letters, digits, ``_ . @ + -``.
        reason: One line for people.
        reads: Whether lookups and loads leave the backend out.
        writes: Whether stores do.
        created_unix_s: Seconds since 1970.
        expires_unix_s: Seconds since 1970; by the wall clock, so that it holds across a restart.
        drain: What waited to be written was written first.
    """

    backend: str
    owner: str
    reason: str
    reads: bool
    writes: bool
    created_unix_s: float
    expires_unix_s: float
    drain: bool = False

    @property
    def hold_owner(self) -> str:
        """Owner of its hold."""
        return f"operator:{self.owner}"

    @property
    def what(self) -> str:
        """What it leaves out, in words."""
        return "reads and writes" if self.reads and self.writes else "reads" if self.reads else "writes"

    def left_s(self, now_unix_s: float) -> float:
        """Seconds until it ends by itself."""
        return max(0.0, self.expires_unix_s - now_unix_s)

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def make_override(
    *, backend: str, owner: str, reason: str, ttl_s: float, reads: bool, writes: bool, drain: bool, now_unix_s: float
) -> Override:
    """Check what an operator wants.

    Raises:
        OverrideError: Says what is wrong and what is due.
    """
    if not _NAME.fullmatch(owner):
        raise OverrideError(f"owner {owner!r}: write a name of letters, digits and _ . @ + -, at most 63")
    if not reason.strip() or len(reason) > _LONGEST_REASON or not reason.isprintable():
        raise OverrideError(
            f"reason: write one line of 1 to {_LONGEST_REASON} letters, for those who find the override"
        )
    if not (math.isfinite(ttl_s) and _LEAST_TTL_S <= ttl_s <= LONGEST_TTL_S):
        raise OverrideError(f"ttl: {ttl_s:g} s is not between 1 s and 30 d; an override always ends, so renew it")
    if not (reads or writes):
        raise OverrideError("neither reads nor writes: the override would leave nothing out")
    return Override(
        backend=backend,
        owner=owner,
        reason=reason.strip(),
        reads=reads,
        writes=writes,
        created_unix_s=now_unix_s,
        expires_unix_s=now_unix_s + ttl_s,
        drain=drain,
    )


def read_override(value: object) -> Override:
    """Make an override of what a state file holds.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{type(value).__name__} is no override")  # noqa: TRY004 - one kind for whatever a file holds
    texts = [value.get(name) for name in ("backend", "owner", "reason")]
    times = [value.get(name) for name in ("created_unix_s", "expires_unix_s")]
    switches = [value.get(name) for name in ("reads", "writes", "drain")]
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(time, (int, float)) and not isinstance(time, bool) and math.isfinite(time) for time in times)
        and all(isinstance(switch, bool) for switch in switches)
    ):
        raise ValueError("a field is missing or has another type")
    created_s, expires_s = (float(time) for time in times)  # type: ignore[arg-type]
    if not created_s <= expires_s <= created_s + LONGEST_TTL_S:
        raise ValueError("its times make no sense")
    backend, owner, reason = (str(text) for text in texts)
    if not _NAME.fullmatch(owner) or not reason.isprintable():
        raise ValueError("its owner or reason makes no sense")
    reads, writes, drain = (bool(switch) for switch in switches)
    return Override(
        backend=backend,
        owner=owner,
        reason=reason,
        reads=reads,
        writes=writes,
        created_unix_s=created_s,
        expires_unix_s=expires_s,
        drain=drain,
    )
