"""Map-reduce definition of one usage metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmcache_core.contracts.event import Event, EventType
from lmcache_core.contracts.message import ContinuousContextMessage, UsageMessage


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One field of one message, filled from events.

    Attributes:
        event_type: Which events it sees.
        field: Field of `message` the reduced value goes to.
        extract: Map; None skips the event. Runs on the bus's drain thread.
        reduce: Must accept an empty sequence, for an interval without events.
        message: The message type that has the field.
    """

    event_type: EventType | str
    field: str
    extract: Callable[[Event], int | float | None]
    reduce: Callable[[Sequence[int | float]], int | float]
    message: type[UsageMessage] = ContinuousContextMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryContext:
    """What specs and subscribers may need to know when they are declared.

    Attributes:
        chunk_tokens: Tokens in one chunk.
        deployment_mode: ``single_process`` or ``mp_server``.
    """

    chunk_tokens: int
    deployment_mode: str
