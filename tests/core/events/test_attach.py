from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from lmcache_core import Event, EventSubscriber, EventType
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
def test_one_that_cannot_be_registered_is_left_out_alone(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    bus, good, failed = EventBus(CacheMetrics()), Listener(), list[str]()
    attach_subscribers(bus, [declared("bad", Listener(error)), declared("good", good)], failed.append, limit_s=10)
    bus.publish(EventType.MP_LOOKUP)
    bus.stop()

    assert (failed, good.heard) == (["bad"], 1)
    assert caplog.messages == [
        f"event subscriber bad is left out: plugin 'bad' (bad 1.0): Listener.get_subscriptions raised {describe(error)}"
    ]


def test_several_of_one_plugin_have_names_of_their_own() -> None:
    bus = EventBus(CacheMetrics())
    brought = [declared("acme", Listener()), declared("acme", Listener()), declared("other", Listener())]
    attach_subscribers(bus, brought, lambda _plugin: None, limit_s=10)
    names = [lane.name for lane in bus.lanes()]
    bus.stop()

    assert names == ["acme", "acme-2", "other"]
