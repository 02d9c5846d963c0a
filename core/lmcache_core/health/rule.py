"""What makes a check fail and pass, in words."""

from __future__ import annotations

from lmcache_core.health.terms import CheckTerms


def describe_rule(terms: CheckTerms) -> str:
    """Say in one sentence how a check is run, judged and answered."""
    parts = [
        f"fails after {_runs(terms.fall, 'failing')}, passes after {_runs(terms.rise, 'passing')}",
        f"runs every {terms.interval_s:g} s, every {terms.fast_interval_s:g} s while it fails",
        f"has {terms.timeout_s:g} s to answer",
        _answer(terms),
    ]
    if terms.depends_on:
        parts.append(f"does not run while {' or '.join(terms.depends_on)} is down")
    return "; ".join(parts)


def _answer(terms: CheckTerms) -> str:
    if not terms.enforce:
        return "is only observed: a failure stops nothing"
    first, *others = terms.ladder
    text = f"while it fails: policy {first}"
    return text + "".join(f", after {terms.ladder_s:g} s more {name}" for name in others)


def _runs(count: int, word: str) -> str:
    return f"one {word} run" if count == 1 else f"{count} {word} runs in a row"
