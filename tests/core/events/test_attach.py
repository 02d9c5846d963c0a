from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from lmcache_core import Event, EventSubscriber, EventType, PluginError
from lmcache_core.events.attach import attach_subscribers
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.registry.hooks import describe
from lmcache_core.registry.record import Declared


class Listener(EventSubscriber):
    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.heard, self.lost, self.ended = error, 0, 0, False

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        if self.error is not None:
            raise self.error
        return {EventType.MP_LOOKUP: self.hear}

    def hear(self, _event: Event) -> None:
        self.heard += 1

    def events_lost(self, count: int) -> None:
        self.lost += count

    def shutdown(self) -> None:
        self.ended = True


def declared(plugin: str, subscriber: EventSubscriber) -> Declared[EventSubscriber]:
    return Declared(plugin, f"{plugin} 1.0", subscriber)


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3)])
def test_one_that_cannot_say_what_it_wants_is_left_out_alone(error: BaseException) -> None:
    bus, good, failed = EventBus(CacheMetrics()), Listener(), list[PluginError]()
    attach_subscribers(bus, [declared("bad", Listener(error)), declared("good", good)], failed.append, limit_s=10)
    bus.publish(EventType.MP_LOOKUP)
    bus.stop()

    assert good.heard == 1
    assert [str(one) for one in failed] == [
        f"plugin 'bad' (bad 1.0): Listener.get_subscriptions raised {describe(error)}"
    ]


def test_one_that_the_bus_refuses_is_left_out_alone() -> None:
    bus, failed = EventBus(CacheMetrics()), list[PluginError]()
    bus.register_subscriber("taken", Listener())
    attach_subscribers(bus, [declared("taken", Listener()), declared("good", Listener())], failed.append, limit_s=10)
    names = [lane.name for lane in bus.lanes()]
    bus.stop()

    assert names == ["taken", "good"]
    assert [one.plugin for one in failed] == ["taken"]
    assert failed[0].reason == (
        "its event subscriber could not be registered: "
        "RuntimeError: event subscriber 'taken' is registered already; choose another name"
    )


def test_what_is_raised_over_one_ends_the_rest() -> None:
    """So that a required plugin stops the start."""

    def refuse(error: PluginError) -> None:
        raise error

    bus = EventBus(CacheMetrics())
    brought = [declared("bad", Listener(RuntimeError("boom"))), declared("good", Listener())]
    with pytest.raises(PluginError, match="boom"):
        attach_subscribers(bus, brought, refuse, limit_s=10)

    assert bus.lanes() == ()


def test_several_of_one_plugin_have_names_of_their_own() -> None:
    bus = EventBus(CacheMetrics())
    brought = [declared("acme", Listener()), declared("acme", Listener()), declared("other", Listener())]
    attach_subscribers(bus, brought, lambda _plugin: None, limit_s=10)
    names = [lane.name for lane in bus.lanes()]
    bus.stop()

    assert names == ["acme", "acme-2", "other"]
