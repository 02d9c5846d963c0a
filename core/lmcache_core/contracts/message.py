"""One flat record of usage telemetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class UsageMessage:
    """Parent of every message; the class name is its type on the wire. Fields are flat JSON values."""

    ENDPOINT: ClassVar[str] = "context"
    """Where under the collector's address it is sent."""


@dataclass(frozen=True)
class ContinuousContextMessage(UsageMessage):
    """What one interval of use came to. Counts are of this interval, never cumulative.

    Attributes:
        interval_num_stored_tokens: Tokens stored, once a request.
        interval_num_hit_tokens: Tokens retrieved, once a request.
        interval_stored_kv_size: Bytes stored.
        sequence_number: Counts messages that were due; a gap is a lost interval.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "cache-usage"

    interval_num_stored_tokens: int
    interval_num_hit_tokens: int
    interval_stored_kv_size: int
    sequence_number: int
    uptime_seconds: float
