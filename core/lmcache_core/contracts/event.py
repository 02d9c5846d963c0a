"""Something that happened on the data path, as subscribers of the bus see it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from lmcache_core.contracts.message import UsageMessage

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class EventType(str, enum.Enum):
    """Kinds of event the core publishes. A plugin's own kind is a string with its name and a dot in front."""

    MP_STORE_END = "mp.store.end"
    MP_RETRIEVE_END = "mp.retrieve.end"
    MP_LOOKUP = "mp.lookup"
    MP_LOOKUP_PREFETCH_END = "mp.lookup_prefetch.end"
    MP_KV_REGISTERED = "mp.kv.registered"
    L1_KEYS_EVICTED = "l1.keys.evicted"
    L1_ALLOCATION_FAILED = "l1.allocation.failed"
    L1_READ_FAILED = "l1.read.failed"
    L2_KEYS_EVICTED = "l2.keys.evicted"
    L2_STORE_COMPLETED = "l2.store.completed"
    L2_LOAD_TASK_SUBMITTED = "l2.load_task.submitted"
    L2_LOAD_TASK_COMPLETED = "l2.load_task.completed"
    L2_PREFETCH_FAILED = "l2.prefetch.failed"
    TIMEOUT_RAISED = "timeout.raised"

    __hash__ = str.__hash__  # enum's own is a Python function, and differs from the equal string's


class Event(NamedTuple):
    """One event. A tuple, as it is made on the data path: a frozen dataclass takes five times as long.

    Attributes:
        event_type: An `EventType`, or a plugin's namespaced string.
        timestamp: Seconds since the epoch.
        metadata: Numbers and names; token counts are right once a request.
        session_id: Of the request, ``""`` for none.
    """

    event_type: EventType | str
    timestamp: float
    metadata: Mapping[str, Any] = _NOTHING
    session_id: str = ""


class EventSubscriber(ABC):
    """A stateful consumer of the bus.

    Each has a queue and a thread of its own on the bus: one that raises, sleeps or never returns harms
    neither publishers nor its siblings. Callbacks run on that thread, one at a time.
    """

    @abstractmethod
    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        """Map kinds of event to callbacks; asked once, at registration."""

    def events_lost(self, count: int) -> None:  # noqa: B027 - most subscribers only count what they see
        """Be told, in the place where they are missing, that so many events found the queue full."""

    def usage_messages(self) -> Iterable[UsageMessage]:
        """Give the messages of the interval that ends now; called on the reporter's thread at each flush.

        Only while usage telemetry is on. The reporter fills in ``sequence_number``, ``uptime_seconds`` and
        ``active_seconds`` where a message has them.
        """
        return ()

    def shutdown(self) -> None:  # noqa: B027 - most subscribers have nothing left to do
        """Do the last work; called once, after the last event."""
