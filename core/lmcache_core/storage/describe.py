"""What a backend's guard, breaker and bypass say of it, as one record."""

from __future__ import annotations

from lmcache_core.contracts.report import BackendReport, BreakerSummary, HoldReport
from lmcache_core.storage.breaker import BreakerReport, BreakerTerms
from lmcache_core.storage.guard import GuardedTier


def describe_tier(tier: GuardedTier, waiting_chunks: int) -> BackendReport:
    """Describe a tier; asks it nothing.

    Args:
        tier: The tier.
        waiting_chunks: In its write-behind queue.
    """
    return BackendReport(
        name=tier.name,
        url=tier.url,
        breaker=summarize_breaker(tier.breaker.snapshot(), tier.breaker.terms),
        holds=tuple(
            HoldReport(owner=owner, reason=hold.reason, reads=hold.reads, writes=hold.writes, draining=hold.draining)
            for owner, hold in sorted(tier.bypass.holds().items())
        ),
        load_failures=tier.load_failures,
        last_ping=tier.evidence.last_ping,
        last_failure=tier.evidence.last_failure,
        waiting_chunks=waiting_chunks,
    )


def summarize_breaker(report: BreakerReport, terms: BreakerTerms) -> BreakerSummary:
    """Put a breaker's report and rule into the words of the contracts."""
    return BreakerSummary(
        state=report.state.value,
        since_s=report.since_s,
        reason=report.reason,
        next_trial_s=report.next_trial_s,
        opened=report.opened,
        bad_calls=report.bad_calls,
        calls=report.calls,
        share=report.share,
        rule=_rule_of(terms),
    )


def _rule_of(terms: BreakerTerms) -> str:
    return (
        f"opens at the first call that gets no answer in time, after {terms.failures} failed calls in a row, or when "
        f"half of at least {terms.least_calls} calls within {terms.window_s:g} s failed or took over "
        f"{terms.slow_call_s:g} s; a trial comes after {terms.open_s:g} s, each further one after twice the pause, at "
        f"most {terms.max_open_s:g} s; {terms.trials} passed trials let traffic back, all of it within "
        f"{terms.ramp_s:g} s"
    )
