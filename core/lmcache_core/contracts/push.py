"""A check whose evidence others bring: a sidecar, a cron job, an operator's script."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from lmcache_core.contracts.health import HealthCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedReport:
    """What was reported.

    Attributes:
        healthy: False makes it a failure.
        reason: One sentence for people, on one line; ``""`` for none.
        degraded: Healthy with a reservation.
        details: Evidence: counts, codes, milliseconds.
    """

    healthy: bool
    reason: str = ""
    degraded: bool = False
    details: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


class PushHealthCheck(HealthCheck):
    """A check that takes reports, over ``POST /health/checks/{name}/report`` for one.

    `check` judges the last report; one that is too old is a failure.
    """

    @abstractmethod
    def take_report(self, report: PushedReport) -> float:
        """Keep a report and give the seconds for which it holds. Any thread; must not block."""
