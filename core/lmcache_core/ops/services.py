"""What the gRPC health service says of each service name."""

from __future__ import annotations

from collections.abc import Sequence

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.report import HealthReport
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.ops.probes import Probes

SYSTEM = ""
"""The service that stands for the whole, by the protocol."""

_CUT_OFF = frozenset({"open", "half_open"})
_AMISS = frozenset({HealthState.DOWN, HealthState.UNKNOWN})


class Services:
    """Which services serve now. None asks a store. Any thread.

    Args:
        monitor: Whose verdict it is.
        probes: What ``livez``, ``readyz`` and ``startupz`` say.
        backends: Names of all tiers.
    """

    def __init__(self, monitor: HealthMonitor, probes: Probes, backends: Sequence[str]) -> None:
        self._monitor = monitor
        self._probes = probes
        self._backends = tuple(backends)

    def serving(self) -> dict[str, bool]:
        """Tell of every service whether it serves; the names are always the same.

        A backend serves while reads may be answered from it: nobody holds its reads out, its breaker is
        not open, and no check that speaks for it fails or is unknown.
        """
        report = self._monitor.report()
        return {
            SYSTEM: report.healthy,
            "livez": True,
            "readyz": self._probes.is_ready,
            "startupz": self._probes.has_started,
            **{name: _serves(name, report) for name in self._backends},
        }


def _serves(name: str, report: HealthReport) -> bool:
    if any(check.backend == name and check.enforced and check.state in _AMISS for check in report.checks):
        return False
    found = next((backend for backend in report.backends if backend.name == name), None)
    if found is None:  # tier 0, which nothing leaves out
        return name not in report.bypassed
    return not any(hold.reads for hold in found.holds) and found.breaker.state not in _CUT_OFF
