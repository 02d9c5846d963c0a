"""Puts the plugins' subscribers on the bus; one that cannot be put there is left out alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lmcache_core.contracts.event import Event, EventSubscriber, EventType
from lmcache_core.errors import PluginError
from lmcache_core.events.bus import EventBus
from lmcache_core.registry.hooks import describe
from lmcache_core.registry.make import make
from lmcache_core.registry.record import Declared


def attach_subscribers(
    bus: EventBus,
    subscribers: Iterable[Declared[EventSubscriber]],
    on_error: Callable[[PluginError], None],
    *,
    limit_s: float,
) -> None:
    """Register each subscriber under its plugin's name; the second of one plugin as ``name-2``, and so on.

    Args:
        bus: Where to.
        subscribers: What plugins bring.
        on_error: Told why a subscriber is left out: it raised or hung while it was registered. The place to log and
            count it; what it raises passes.
        limit_s: Longest that a third party's may take to say what it wants to see.
    """
    counts: dict[str, int] = {}
    for declared in subscribers:
        plugin = declared.plugin
        counts[plugin] = counts.get(plugin, 0) + 1
        name = plugin if counts[plugin] == 1 else f"{plugin}-{counts[plugin]}"
        try:
            bus.register_subscriber(name, _ask(declared, limit_s))
        except PluginError as error:
            on_error(error)
        except Exception as error:  # noqa: BLE001 - the border of one plugin's subscriber, and `on_error` is told
            reason = f"its event subscriber could not be registered: {describe(error)}"
            refused = PluginError(plugin=plugin, origin=declared.origin, reason=reason)
            refused.__cause__ = error
            on_error(refused)


def _ask(declared: Declared[EventSubscriber], limit_s: float) -> _Asked:
    what = f"{type(declared.value).__name__}.get_subscriptions"
    wanted = make(declared, what, lambda: dict(declared.value.get_subscriptions()), limit_s=limit_s)
    return _Asked(declared.value, wanted)


class _Asked(EventSubscriber):
    """A subscriber that has said what it wants to see, so that the bus need not ask a third party's code."""

    def __init__(self, subscriber: EventSubscriber, wanted: Mapping[EventType | str, Callable[[Event], None]]) -> None:
        self._subscriber = subscriber
        self._wanted = wanted

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        """Give what it said."""
        return self._wanted

    def events_lost(self, count: int) -> None:
        """Tell it."""
        self._subscriber.events_lost(count)

    def shutdown(self) -> None:
        """Let it end."""
        self._subscriber.shutdown()
