from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from lmcache_core import Event, EventSubscriber, EventType
from lmcache_core.events.attach import attach_subscribers
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics


class Listener(EventSubscriber):
    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.heard = error, 0

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        if self.error is not None:
            raise self.error
        return {EventType.MP_LOOKUP: self.hear}

    def hear(self, _event: Event) -> None:
        self.heard += 1


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3)])
def test_one_that_cannot_be_registered_is_left_out_alone(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    bus, good, failed = EventBus(CacheMetrics()), Listener(), list[str]()
    attach_subscribers(bus, [("bad", Listener(error)), ("good", good)], failed.append)
    bus.publish(EventType.MP_LOOKUP)
    bus.stop()

    assert (failed, good.heard) == (["bad"], 1)
    assert caplog.messages == ["event subscriber bad is left out: it could not be registered"]


def test_several_of_one_plugin_have_names_of_their_own() -> None:
    bus = EventBus(CacheMetrics())
    attach_subscribers(bus, [("acme", Listener()), ("acme", Listener()), ("other", Listener())], lambda _plugin: None)
    names = [lane.name for lane in bus.lanes()]
    bus.stop()

    assert names == ["acme", "acme-2", "other"]
