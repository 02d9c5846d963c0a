"""Why things are as they are: for each verdict the evidence, the rule, since when, and what happens next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.report import BackendReport, CheckReport, HealthReport, HoldReport
from lmcache_core.health.history import describe_hold, traffic_of

_COUNTDOWN = "_in_s"
_OPERATOR = "operator:"
_GATE_RULE = (
    "the cache serves while no check fails whose policy closes it, and the monitor's verdicts are fresh; else "
    "everything is recomputed"
)
_ORDER = (HealthState.DOWN, HealthState.DEGRADED, HealthState.UNKNOWN)
_CLOSED, _OPEN, _HALF_OPEN = "closed", "open", "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens next.

    Attributes:
        what: In words.
        in_s: Seconds until then; None when something else decides.
    """

    what: str
    in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One thing that speaks for, or against, a verdict.

    Attributes:
        subject: Such as ``check 'disk-space'``, ``breaker`` or ``operator:alice``.
        state: In one word.
        since_s: For how long; None where that is not known.
        evidence: Counts, codes, latencies, sentences.
        rule: What decides.
        steps: What happens next.
    """

    subject: str
    state: str
    since_s: float | None
    evidence: tuple[str, ...]
    rule: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Of the system (`name` is ``""``) or of one backend.

    Attributes:
        name: Of the backend.
        url: Its address without credentials.
        state: ``up``, ``degraded``, ``down``, ``unknown`` or ``maintenance``.
        traffic: What it gets, in words.
        reason: One sentence.
        grounds: What speaks for it, the worst first.
    """

    name: str
    url: str
    state: str
    traffic: str
    reason: str
    grounds: tuple[Ground, ...]


_TRIAL_IS_DUE = Step(what="the next call that reaches it is a trial")


def explain(report: HealthReport, backend: str | None = None) -> list[Explanation]:
    """Explain the system and each backend, or one backend.

    Raises:
        LookupError: No such backend; says which there are.
    """
    backends = report.backends
    if backend is not None:
        backends = tuple(one for one in backends if one.name == backend)
        if not backends:
            raise LookupError(_unknown(backend, [one.name for one in report.backends]))
    explained = [_explain_backend(one, report) for one in backends]
    return explained if backend is not None else [_explain_system(report), *explained]


def explanations_as_json(report: HealthReport, explanations: Iterable[Explanation]) -> dict[str, Any]:
    """Give explanations, under the system's verdict, as JSON values."""
    return {
        "healthy": report.healthy,
        "state": report.state.value,
        "reason": report.reason,
        "since_s": round(report.since_s, 3),
        "explanations": [
            {
                "name": one.name,
                "url": one.url,
                "state": one.state,
                "traffic": one.traffic,
                "reason": one.reason,
                "grounds": [_ground_as_json(ground) for ground in one.grounds],
            }
            for one in explanations
        ],
    }


def _explain_system(report: HealthReport) -> Explanation:
    gate = Ground(
        subject="gate",
        state="open" if report.healthy else "closed",
        since_s=report.since_s,
        evidence=(report.reason,) if report.reason else ("every check passes",),
        rule=_GATE_RULE,
        steps=() if report.healthy else (Step(what="opens when the reasons are gone"),),
    )
    names = {backend.name for backend in report.backends}
    checks = [_of_check(check) for check in _worst_first(report.checks) if check.backend not in names]
    plugins = [
        Ground(
            subject=f"plugin {name!r}",
            state="failed",
            since_s=None,
            evidence=(why,),
            rule="what a plugin could not load or make is left out, and nothing else",
            steps=(Step(what="is tried again at the next start"),),
        )
        for name, why in sorted(report.plugins_failed.items())
    ]
    return Explanation(
        name="",
        url="",
        state=report.state.value,
        traffic="serves" if report.healthy else "recomputes everything",
        reason=report.reason,
        grounds=(gate, *checks, *plugins),
    )


def _explain_backend(backend: BackendReport, report: HealthReport) -> Explanation:
    checks = [check for check in report.checks if check.backend == backend.name]
    state = _state_of(backend, checks)
    operators = [hold for hold in backend.holds if hold.owner.startswith(_OPERATOR)]
    policies = [hold for hold in backend.holds if not hold.owner.startswith(_OPERATOR)]
    grounds = [
        *(_of_hold(hold, checks) for hold in operators),
        _of_breaker(backend),
        *(_of_check(check, backend) for check in _worst_first(checks)),
        *(_of_hold(hold, checks) for hold in policies),
    ]
    return Explanation(
        name=backend.name,
        url=backend.url,
        state=state,
        traffic=_traffic(backend, report),
        reason=_reason(backend, checks),
        grounds=tuple(grounds),
    )


def _state_of(backend: BackendReport, checks: Sequence[CheckReport]) -> str:
    operators = [hold for hold in backend.holds if hold.owner.startswith(_OPERATOR)]
    if any(hold.reads for hold in operators) and any(hold.writes for hold in operators):
        return HealthState.MAINTENANCE.value
    states = {check.state for check in checks}
    if backend.breaker.state == _OPEN or HealthState.DOWN in states:
        return HealthState.DOWN.value
    if backend.breaker.state != _CLOSED or backend.holds or HealthState.DEGRADED in states:
        return HealthState.DEGRADED.value
    return HealthState.UNKNOWN.value if HealthState.UNKNOWN in states else HealthState.UP.value


def _traffic(backend: BackendReport, report: HealthReport) -> str:
    word, _ = traffic_of(backend)
    if not report.healthy:
        return "nothing, as everything is recomputed"
    if word == "left out" or backend.breaker.state == _OPEN:
        return "nothing"
    if backend.breaker.state == _HALF_OPEN:
        return "one trial call at a time"
    share = "" if backend.breaker.share >= 1 else f", {backend.breaker.share:.0%} of it"
    return {"in use": "reads and writes"}.get(word, word) + share


def _reason(backend: BackendReport, checks: Sequence[CheckReport]) -> str:
    reasons = [describe_hold(hold) for hold in backend.holds if not hold.owner.startswith("check:")]
    if backend.breaker.state != _CLOSED:
        reasons.append(f"breaker {backend.breaker.state.replace('_', '-')}: {backend.breaker.reason}")
    reasons += [_own(check.reason, backend) for check in _worst_first(checks) if check.state in _ORDER and check.reason]
    return "; ".join(dict.fromkeys(reasons))


def _of_hold(hold: HoldReport, checks: Sequence[CheckReport]) -> Ground:
    what = "reads and writes" if hold.reads and hold.writes else "reads" if hold.reads else "writes"
    state = "draining" if hold.draining else f"leaves out {what}"
    evidence = (f"reason: {hold.reason}",) if hold.reason else ()
    if hold.owner.startswith(_OPERATOR):
        rule = "an operator's override: nothing but its end or the operator undoes it"
        ends = (
            Step(what="expires", in_s=hold.left_s) if hold.left_s is not None else Step(what="ends by its owner alone")
        )
    else:
        rule = "a fallback policy's hold: it ends when the check passes"
        mine = [check.next_run_s for check in checks if hold.owner == f"check:{check.name}"]
        ends = Step(what="the check runs again", in_s=min(mine)) if mine else Step(what="ends by its owner alone")
    return Ground(subject=hold.owner, state=state, since_s=None, evidence=evidence, rule=rule, steps=(ends,))


def _of_breaker(backend: BackendReport) -> Ground:
    breaker = backend.breaker
    evidence = []
    if breaker.reason:
        evidence.append(f"opened {_times(breaker.opened)}, last because {breaker.reason}")
    if breaker.calls:
        evidence.append(f"{breaker.bad_calls} of the last {breaker.calls} calls failed or were slow")
    evidence.append(f"failed loads since start: {backend.load_failures}")
    if backend.last_failure is not None:
        failure = backend.last_failure
        evidence.append(f"last failure, a {failure.call}, {span(failure.age_s)} ago: {_own(failure.reason, backend)}")
    if backend.last_ping is not None:
        evidence.append(_ping(backend))
    if backend.waiting_chunks:
        evidence.append(f"{backend.waiting_chunks} chunks wait to be written")
    steps = {
        _OPEN: (_TRIAL_IS_DUE if breaker.next_trial_s <= 0 else Step(what="a trial call", in_s=breaker.next_trial_s),),
        _HALF_OPEN: (_TRIAL_IS_DUE,),
        "ramp": (Step(what=f"more than {breaker.share:.0%} of the traffic, then all of it"),),
    }
    return Ground(
        subject="breaker",
        state=breaker.state.replace("_", "-"),
        since_s=breaker.since_s,
        evidence=tuple(evidence),
        rule=breaker.rule,
        steps=steps.get(breaker.state, ()),
    )


def _ping(backend: BackendReport) -> str:
    ping = backend.last_ping
    if ping is None:
        return ""
    word = {0: "answered", -1: "got no answer in time (code -1)"}.get(ping.code, f"failed (code {ping.code})")
    return f"last ping {word} after {ping.latency_ms:.1f} ms, {span(ping.age_s)} ago"


def _own(reason: str, backend: BackendReport | None) -> str:
    """Leave out the backend's name and address where the reader knows them."""
    if backend is None:
        return reason
    for link in (f" ({backend.url}): ", f" at {backend.url}: ", ": "):
        if reason.startswith(backend.name + link):
            return reason[len(backend.name + link) :]
    return reason


def _of_check(check: CheckReport, backend: BackendReport | None = None) -> Ground:
    evidence = [_own(check.reason, backend)] if check.reason else []
    if check.fails > 1:
        evidence.append(f"failed {check.fails} times in a row")
    if check.age_s is not None:
        evidence.append(f"last verdict {span(check.age_s)} ago")
    evidence += [f"{name} {_plain(value)}" for name, value in check.details.items() if not name.endswith(_COUNTDOWN)]
    if check.engaged:
        evidence.append(f"policy {check.policy} is engaged")
    age_s = check.age_s or 0.0
    steps = [
        Step(what=name[: -len(_COUNTDOWN)].replace("_", " "), in_s=max(0.0, float(value) - age_s))
        for name, value in check.details.items()
        if name.endswith(_COUNTDOWN) and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    steps.append(Step(what="next run", in_s=check.next_run_s))
    return Ground(
        subject=f"check {check.name!r}",
        state=check.state.value,
        since_s=check.since_s,
        evidence=tuple(evidence),
        rule=check.rule,
        steps=tuple(steps),
    )


def _worst_first(checks: Iterable[CheckReport]) -> list[CheckReport]:
    return sorted(checks, key=lambda check: _ORDER.index(check.state) if check.state in _ORDER else len(_ORDER))


def _ground_as_json(ground: Ground) -> dict[str, Any]:
    return {
        "subject": ground.subject,
        "state": ground.state,
        "since_s": None if ground.since_s is None else round(ground.since_s, 3),
        "evidence": list(ground.evidence),
        "rule": ground.rule,
        "next": [{"what": step.what, "in_s": _seconds(step.in_s)} for step in ground.steps],
    }


def _seconds(value: float | None) -> float | None:
    return None if value is None or value == float("inf") else round(value, 3)


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}" if near else f"known: {', '.join(known) or 'none'}"
    return f"backend {name!r} is not there; {hint}"


def span(seconds: float) -> str:
    """Write a time as people say it: ``4.2 s``, ``3 min``, ``5 h``, ``2 d``."""
    if seconds < 10:  # noqa: PLR2004 - one digit before the point leaves room for one behind it
        return f"{seconds:.1f} s"
    for unit_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {name}"
    return f"{seconds:.0f} s"
