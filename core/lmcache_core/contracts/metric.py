"""Map-reduce definition of one usage metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lmcache_core.contracts.event import Event, EventType
from lmcache_core.contracts.message import ContinuousContextMessage, UsageMessage
from lmcache_core.contracts.settings import PluginSettings


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One field of one message, filled from events.

    The specs of a message fill every field of it that is neither a tag nor among `REPORTER_FIELDS`,
    each once.

    Attributes:
        event_type: Which events it sees.
        field: Field of `message` the reduced value goes to.
        extract: Map; None skips the event, a list or tuple counts as several values. Runs on a thread of
            telemetry, some time after the event; specs that share one function share its result. It must
            not change anything, as it may be called twice.
        reduce: From the interval's values to the field's: a number, or a dict for a histogram. Must accept
            an empty sequence, for an interval without events. With Python's own `sum` values are folded
            early and none is ever lost; for any other function they are kept until the interval ends, up to
            a bound.
        message: The message type that has the field.
    """

    event_type: EventType | str
    field: str
    extract: Callable[[Event], int | float | Sequence[int | float] | None]
    reduce: Callable[[Sequence[int | float]], int | float | Mapping[str, int]]
    message: type[UsageMessage] = ContinuousContextMessage


def _no_settings(table: str) -> PluginSettings | None:
    """Stand in for the configuration where there is none."""
    del table
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryContext:
    """What specs and subscribers may need to know when they are declared.

    Attributes:
        chunk_tokens: Tokens in one chunk.
        deployment_mode: ``single_process`` or ``mp_server``.
        settings: Gives a plugin's validated table by its name; None where the configuration has none.
    """

    chunk_tokens: int
    deployment_mode: str
    settings: Callable[[str], PluginSettings | None] = _no_settings
