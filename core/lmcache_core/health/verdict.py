"""What the checks' verdicts come to, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.report import CheckReport, HealthReport


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of the system: what the gate reads, and why."""

    healthy: bool
    state: HealthState
    reason: str = ""


def judge_checks(
    checks: Sequence[CheckReport],
    *,
    blocking: Iterable[str],
    bypassed: Mapping[str, Sequence[str]],
    plugins_failed: Mapping[str, str],
    reservations: Iterable[str] = (),
) -> Verdict:
    """Judge the system by its checks.

    Args:
        checks: Their verdicts.
        blocking: Names of the checks that keep the cache from serving.
        bypassed: Backends left out, with owners.
        plugins_failed: Plugins that did not load, or could not make something, with reasons.
        reservations: What else is amiss while it serves.
    """
    by_name = {check.name: check for check in checks}
    stops = [_sentence(by_name[name]) for name in blocking]
    if stops:
        return Verdict(healthy=False, state=HealthState.DOWN, reason="; ".join(stops))
    shown = (HealthState.DOWN, HealthState.DEGRADED, HealthState.UNKNOWN)
    amiss = [_sentence(check) for check in checks if check.state in shown]
    amiss += [
        f"backend {name!r} is bypassed by {', '.join(owners)}" for name, owners in sorted(bypassed.items()) if owners
    ]
    amiss += [f"plugin {name!r} failed: {why}" for name, why in sorted(plugins_failed.items())]
    amiss += reservations
    if amiss:
        return Verdict(healthy=True, state=HealthState.DEGRADED, reason="; ".join(amiss))
    return Verdict(healthy=True, state=HealthState.UP)


def age_check(check: CheckReport, elapsed_s: float, belief_s: float) -> CheckReport:
    """Move a verdict's times on; one too old to be believed reads UNKNOWN.

    Args:
        check: As it was described.
        elapsed_s: Since then.
        belief_s: Age from which on a verdict is not believed any more.
    """
    age_s = None if check.age_s is None else check.age_s + elapsed_s
    aged = replace(
        check,
        since_s=check.since_s + elapsed_s,
        age_s=age_s,
        next_run_s=max(0.0, check.next_run_s - elapsed_s),
    )
    if age_s is None or age_s <= belief_s:
        return aged
    reason = f"the last verdict ({check.state.value}) is {age_s:.0f} s old"
    return replace(aged, state=HealthState.UNKNOWN, reason=reason)


def report_as_json(report: HealthReport) -> dict[str, Any]:
    """Give a report as values that `json.dumps` takes, whatever a check put into its details."""
    return {
        "healthy": report.healthy,
        "state": report.state.value,
        "reason": report.reason,
        "since_s": round(report.since_s, 3),
        "checks": [_check_as_json(check) for check in report.checks],
        "bypassed": {name: list(owners) for name, owners in sorted(report.bypassed.items())},
        "plugins_failed": dict(sorted(report.plugins_failed.items())),
        "backends": [_rounded(asdict(backend)) for backend in report.backends],
    }


def _check_as_json(check: CheckReport) -> dict[str, Any]:
    return {
        "name": check.name,
        "plugin": check.plugin,
        "backend": check.backend,
        "state": check.state.value,
        "reason": check.reason,
        "policy": check.policy,
        "engaged": check.engaged,
        "ladder": list(check.ladder),
        "enforced": check.enforced,
        "group": check.group,
        "since_s": round(check.since_s, 3),
        "age_s": None if check.age_s is None else round(check.age_s, 3),
        "next_run_s": round(check.next_run_s, 3),
        "details": {str(key): _plain(value) for key, value in check.details.items()},
        "rule": check.rule,
        "passes": check.passes,
        "fails": check.fails,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in value]
    return round(value, 3) if isinstance(value, float) else value


def _plain(value: object) -> str | int | float | bool | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN and no infinity
    if value is None or isinstance(value, (str, int, float)):
        return value
    return type(value).__name__  # a repr could show a secret


def _sentence(check: CheckReport) -> str:
    reason = check.reason or check.state.value
    if check.state is HealthState.DOWN and check.engaged:
        return f"check {check.name!r} fails: {reason}; policy {check.policy}"
    word = "fails" if check.state is HealthState.DOWN else f"is {check.state.value}"
    return f"check {check.name!r} {word}: {reason}"
