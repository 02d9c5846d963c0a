"""Something that happened on the data path, as subscribers of the bus see it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class EventType(str, enum.Enum):
    """Kinds of event the core publishes. A plugin's own kind is a string with its name and a dot in front."""

    MP_STORE_END = "mp.store.end"
    MP_RETRIEVE_END = "mp.retrieve.end"
    MP_LOOKUP = "mp.lookup"
    MP_LOOKUP_PREFETCH_END = "mp.lookup_prefetch.end"
    MP_KV_REGISTERED = "mp.kv.registered"
    L1_KEYS_EVICTED = "l1.keys.evicted"
    L1_ALLOCATION_FAILED = "l1.allocation.failed"
    L2_KEYS_EVICTED = "l2.keys.evicted"
    L2_STORE_COMPLETED = "l2.store.completed"
    L2_LOAD_TASK_SUBMITTED = "l2.load_task.submitted"
    L2_LOAD_TASK_COMPLETED = "l2.load_task.completed"
    L2_PREFETCH_FAILED = "l2.prefetch.failed"
    TIMEOUT_RAISED = "timeout.raised"


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        event_type: An `EventType`, or a plugin's namespaced string.
        timestamp: Seconds since the epoch.
        metadata: Numbers and names; token counts are right once a request.
        session_id: Of the request, ``""`` for none.
    """

    event_type: EventType | str
    timestamp: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    session_id: str = ""


class EventSubscriber(ABC):
    """A stateful consumer of the bus. Callbacks run on the bus's drain thread, one at a time."""

    @abstractmethod
    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        """Map kinds of event to callbacks; asked once, at registration."""

    def shutdown(self) -> None:  # noqa: B027 - most subscribers have nothing left to do
        """Do the last work; called once, after the last event."""
