"""One aspect of health, run by the monitor."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from lmcache_core.contracts.control import CacheView


class HealthState(str, enum.Enum):
    """What the monitor says of a check or of the system."""

    UP = "up"
    DEGRADED = "degraded"
    """Works, with a reservation that the reason names; nothing is bypassed."""
    DOWN = "down"
    UNKNOWN = "unknown"
    """Not run yet, or the last verdict is too old to be believed."""
    SKIPPED = "skipped"
    """`HealthCheck.should_skip` said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one run of a check found.

    Attributes:
        healthy: False makes the run a failure.
        reason: One sentence for people; no secret.
        degraded: Healthy with a reservation.
        details: Evidence: counts, codes, milliseconds. JSON values only, no secret.
    """

    healthy: bool
    reason: str = ""
    degraded: bool = False
    details: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


class HealthCheck(ABC):
    """One aspect of health.

    `check` runs on a worker thread under the check's own timeout; one that hangs counts as failed and
    delays no other. The monitor reads every property once a round.

    Example:
        >>> class DiskSpaceCheck(HealthCheck):
        ...     def name(self) -> str:
        ...         return "disk-space"
        ...
        ...     def check(self) -> bool:
        ...         return shutil.disk_usage("/var").free > 1 << 30
        ...
        ...     @classmethod
        ...     def create(cls, manager: CacheView) -> list[HealthCheck]:
        ...         return [cls()]
    """

    @abstractmethod
    def name(self) -> str:
        """Give a name that is unique among all checks and never contains a URL's credentials."""

    @abstractmethod
    def check(self) -> bool | CheckResult:
        """Run once.

        Raises:
            Exception: Counts as a failure; its text becomes the reason.
            IrrecoverableException: The check can never pass again; health stays down for good.
        """

    @classmethod
    @abstractmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make the instances that apply: none, one or many (one a remote, say)."""

    @property
    def fallback_policy(self) -> str:
        """Name of the policy to engage while this check fails."""
        return "recompute"

    def should_skip(self) -> bool:
        """Tell whether this round leaves the check out."""
        return False

    def get_bypass_backend_name(self) -> str | None:
        """Name the backend that a policy such as ``local_cpu`` leaves out; None for none."""
        return None

    @property
    def interval(self) -> float | None:
        """Seconds between two runs; None for the configured ``ping_interval``."""
        return None

    @property
    def timeout(self) -> float | None:
        """Seconds one run may take; None for three times the configured ``ping_timeout``."""
        return None

    @property
    def rise(self) -> int:
        """Passing runs in a row that make a failed check healthy again."""
        return 1

    @property
    def fall(self) -> int:
        """Failing runs in a row that make a healthy check failed."""
        return 1
