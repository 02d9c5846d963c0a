"""One aspect of health, run by the monitor."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lmcache_core.contracts.control import CacheView

READS: Final = "reads"
WRITES: Final = "writes"
BOTH_SIDES: Final = frozenset({READS, WRITES})
"""The sides of a backend that can fail, or be left out, by themselves."""


class HealthState(str, enum.Enum):
    """What the monitor says of a check or of the system."""

    UP = "up"
    DEGRADED = "degraded"
    """Works, with a reservation that the reason names; nothing is bypassed."""
    DOWN = "down"
    UNKNOWN = "unknown"
    """Not run yet, not run while a check it depends on is down, or the last verdict is too old to be believed."""
    SKIPPED = "skipped"
    """`HealthCheck.should_skip` said so."""
    MAINTENANCE = "maintenance"
    """An operator holds the check's backend out, so that nothing has to answer for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one run of a check found.

    Attributes:
        healthy: False makes the run a failure.
        reason: One sentence for people; no secret.
        degraded: Healthy with a reservation.
        details: Evidence: counts, codes, milliseconds. JSON values only, no secret.
        failing: Of a failure: which side of the backend fails, ``reads``, ``writes`` or both. A policy that
            leaves the other side alone is used only while it helps.
    """

    healthy: bool
    reason: str = ""
    degraded: bool = False
    details: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    failing: frozenset[str] = BOTH_SIDES


class HealthCheck(ABC):
    """One aspect of health.

    `check` runs on a worker thread under the check's own timeout; one that hangs counts as failed and
    delays no other. The monitor reads every property once a round. What ``[[extra_config.checks]]`` says of
    a check wins over its properties.

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
    def fallback_policy(self) -> str | Sequence[str]:
        """Name of the policy to engage while this check fails; several are a ladder.

        The next one of a ladder takes over when the failure lasts, or when the one before does not help
        with the side that fails.
        """
        return "recompute"

    @property
    def policy_ladder_secs(self) -> float | None:
        """Seconds one rung of a ladder may last; None for the configured ``policy_ladder_secs``."""
        return None

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

    @property
    def initial_delay(self) -> float:
        """Seconds from start-up to the first run; above 0, nothing waits for that run."""
        return 0.0

    @property
    def jitter(self) -> float:
        """Share of the interval, 0 to below 1, by which a run comes early at random: a fleet must not ask in step."""
        return 0.1

    @property
    def fast_interval(self) -> float | None:
        """Seconds between two runs while the check fails; None for a fifth of the interval."""
        return None

    @property
    def enforce(self) -> bool:
        """False only observes: a failure is shown and counted, engages no policy and stops nothing."""
        return True

    @property
    def group(self) -> str:
        """Name under which `depends_on` finds this check together with others; ``""`` for none."""
        return ""

    @property
    def depends_on(self) -> Sequence[str]:
        """Names of checks or groups, ``*`` for any letters: while one of them is down, this one does not run.

        It then reads UNKNOWN and engages nothing. What fits no check has no meaning.
        """
        return ()
