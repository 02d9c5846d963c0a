"""One flat record of usage telemetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

REPORTER_FIELDS = frozenset(
    {
        "sequence_number",
        "uptime_seconds",
        "active_seconds",
        "dropped_events",
        "dropped_samples",
        "swallowed_errors",
        "lost_intervals",
        "gap_reason",
        "sample_rate",
    }
)
"""Fields that the reporter fills itself, in every message that has them; no metric spec may."""


@dataclass(frozen=True)
class UsageMessage:
    """Parent of every message; the class name is its type on the wire.

    A field is one of ``int``, ``float``, ``str``, ``bool`` and ``dict[str, int]``. The last is a
    histogram: upper bound as text to count, the overflow under ``+Inf``. Nothing in a message may
    identify a person, a machine, an address, a path, a prompt or a key.
    """

    ENDPOINT: ClassVar[str] = "context"
    """Where under the collector's address it is sent."""

    TAGS: ClassVar[tuple[str, ...]] = ()
    """Fields that tell several of these in one interval apart. Each is text from a bounded set; the
    reporter takes it from the event's metadata and sends one message for each combination."""


@dataclass(frozen=True)
class ContinuousContextMessage(UsageMessage):
    """What one interval of use came to, and what this report does not know.

    Counts are of this interval, never cumulative. It is sent for an empty interval too.

    Attributes:
        interval_num_stored_tokens: Tokens stored, once a request.
        interval_num_hit_tokens: Tokens retrieved, once a request.
        interval_stored_kv_size: Bytes stored.
        interval_num_requested_tokens: Tokens asked for in lookups; what hits are measured against.
        interval_num_lookup_hit_tokens: Tokens that lookups found.
        interval_l1_evicted_keys: Chunks that left CPU memory to make room.
        interval_l2_evicted_keys: Chunks that left the stores behind it to make room.
        sequence_number: Intervals that were due before this one in this session; a gap is a lost interval.
        uptime_seconds: Since the reporter started.
        dropped_events: Events the bus had no room for, since the last report that arrived.
        dropped_samples: Values that could not be kept or were no finite number, since the last report that arrived.
        swallowed_errors: Errors inside telemetry, since the last report that arrived.
        lost_intervals: Intervals that did not arrive, since the last report that did.
        gap_reason: Why the last of them did not: ``""``, ``timeout``, ``dns``, ``refused``, ``tls``,
            ``connection``, ``http_<status>``, ``bad_value`` or ``error``.
        sample_rate: Share of the events that is counted.
    """

    ENDPOINT: ClassVar[str] = "cache-usage"

    interval_num_stored_tokens: int
    interval_num_hit_tokens: int
    interval_stored_kv_size: int
    interval_num_requested_tokens: int
    interval_num_lookup_hit_tokens: int
    interval_l1_evicted_keys: int
    interval_l2_evicted_keys: int
    sequence_number: int
    uptime_seconds: float
    dropped_events: int = 0
    dropped_samples: int = 0
    swallowed_errors: int = 0
    lost_intervals: int = 0
    gap_reason: str = ""
    sample_rate: float = 1.0
