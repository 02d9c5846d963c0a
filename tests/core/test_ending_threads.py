"""A thread that ends as it was told to is no dead one, whoever looks at that moment."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.core.server.served import Served, socket_path
from tests.memory_store import Rig

from lmcache_core import EventSubscriber
from lmcache_core.contracts.control import ThreadReport
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.server.control import ControlServer
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary


class Ending:
    """Ends, as it was told to, at the moment that it is looked at."""

    name = "ending"

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def is_alive(self) -> bool:
        self._tell()
        return False


class Idle(PeriodicThread):
    def _execute(self) -> ThreadRunSummary:
        return ThreadRunSummary(success=True)


class Deaf(EventSubscriber):
    def get_subscriptions(self) -> dict[Any, Any]:
        return {}


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="lmc") as folder:
        made = Served(socket_path(Path(folder)))
        made.server.start()
        yield made
        made.close()


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sequence[ThreadReport]]:
    """Look at what has a thread, while it is told to end and ends; its own thread is put back."""

    def at(owner: Any, tell: Callable[[], object], threads: Callable[[], Sequence[ThreadReport]]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(owner, "_thread", Ending(tell))
            return threads()

    return at


def test_of_the_registry(look) -> None:
    registry = PeriodicThreadRegistry()
    thread = Idle("idle", 3600.0, ThreadLevel.LOW, registry=registry)
    thread.start()

    assert look(thread, thread._stopping.set, registry.reports) == []
    assert thread.stop()


def test_one_that_gave_up_by_itself_is_shown(look) -> None:
    registry = PeriodicThreadRegistry()
    thread = Idle("idle", 3600.0, ThreadLevel.LOW, registry=registry)
    thread.start()
    (report,) = look(thread, lambda: thread._end("gave up"), registry.reports)

    assert (report.is_alive, report.reason) == (False, "gave up")
    assert thread.stop()


def test_of_the_event_bus(look) -> None:
    bus = EventBus(CacheMetrics())
    bus.register_subscriber("deaf", Deaf())

    assert look(bus.lanes()[0], lambda: setattr(bus, "_closing", True), bus.threads) == []
    bus._closing = False
    assert bus.stop()


def test_of_write_behind(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = rig.storage._writers[0]
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_threads", [Ending(lambda: writer.stop(0.0))])
        usage = writer.usage()

    assert usage.dead_threads == ()


def test_of_the_server(served: Served, look) -> None:
    loop = served.server._parts.loop

    assert look(loop, lambda: setattr(loop, "_ended", True), loop.threads) == ()


def test_of_the_lifeline(served: Served, look) -> None:
    lifeline = served.server._parts.lifeline

    assert look(lifeline, lambda: setattr(lifeline, "_stopping", True), lifeline.threads) == ()
    lifeline._ring()


def test_a_server_that_is_being_started_is_not_taken_for_dead(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health is watched before the first client may come."""
    start, seen = threading.Thread.start, []
    with tempfile.TemporaryDirectory(prefix="lmc") as folder:
        other = Served(socket_path(Path(folder)))
        other.server.claim()

        def look_first(thread: threading.Thread) -> None:
            seen.extend(report.is_alive for report in other.server.threads())
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", look_first)
            other.server.start()
        other.close()

    assert set(seen) <= {True}


def test_a_scrape_while_the_server_stops_is_no_error(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts go while somebody reads them."""
    parts = served.server._parts
    given = iter([parts])
    with monkeypatch.context() as patch:
        patch.setattr(ControlServer, "_parts", property(lambda _: next(given, None)), raising=False)
        del served.server.__dict__["_parts"]
        sessions = served.server.session_count()
    served.server._parts = parts

    assert sessions == 0
