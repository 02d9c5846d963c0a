"""Puts the plugins' subscribers on the bus; one that cannot be put there is left out alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from lmcache_core.contracts.event import EventSubscriber
from lmcache_core.events.bus import EventBus

log = logging.getLogger(__name__)


def attach_subscribers(
    bus: EventBus, subscribers: Iterable[tuple[str, EventSubscriber]], on_error: Callable[[str], None]
) -> None:
    """Register each subscriber under its plugin's name; the second of one plugin as ``name-2``, and so on.

    Args:
        bus: Where to.
        subscribers: Plugin's name and what it brings.
        on_error: Told the plugin whose subscriber raised while it was registered; the place to count it.
    """
    counts: dict[str, int] = {}
    for plugin, subscriber in subscribers:
        counts[plugin] = counts.get(plugin, 0) + 1
        name = plugin if counts[plugin] == 1 else f"{plugin}-{counts[plugin]}"
        try:
            bus.register_subscriber(name, subscriber)
        except (Exception, SystemExit) as error:  # the border of one plugin's subscriber
            log.warning("event subscriber %s is left out: it could not be registered", name, exc_info=error)
            on_error(plugin)
