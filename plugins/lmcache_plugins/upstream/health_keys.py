"""Health keys, LMCache's own where they are set there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SHARED_KEYS: Final = frozenset(
    {
        "ping_interval",
        "ping_timeout",
        "get_blocking_failed_threshold",
        "waiting_time_for_recovery",
        "fallback_policy",
    }
)
"""Keys of ``extra_config`` that LMCache and this project share."""


@dataclass(frozen=True, slots=True)
class HealthKeys:
    """The health keys that LMCache and this project share by name, and this project's others.

    A key in LMCache's ``extra_config`` wins, so that a check without an interval of its own runs in every
    round of LMCache's monitor. A value that could not be used there is passed over.
    """

    ping_interval: float
    ping_timeout: float
    get_blocking_failed_threshold: int
    waiting_time_for_recovery: float
    fallback_policy: str | Sequence[str]
    policy_ladder_secs: float

    @classmethod
    def of(cls, theirs: Any, ours: Any) -> HealthKeys:
        """Join LMCache's ``extra_config``, a mapping or None, with this project's."""
        set_there = theirs if isinstance(theirs, dict) else {}

        def number(key: str) -> Any:
            value = set_there.get(key)
            usable = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
            return value if usable else getattr(ours, key)

        policy = set_there.get("fallback_policy")
        return cls(
            ping_interval=number("ping_interval"),
            ping_timeout=number("ping_timeout"),
            get_blocking_failed_threshold=number("get_blocking_failed_threshold"),
            waiting_time_for_recovery=number("waiting_time_for_recovery"),
            fallback_policy=policy if isinstance(policy, str) else ours.fallback_policy,
            policy_ladder_secs=ours.policy_ladder_secs,
        )
