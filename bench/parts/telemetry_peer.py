"""The same work on LMCache's own bus and reporter; run by ``bench/telemetry.py --peer-python`` in that environment.

Nothing is sent: the sender keeps what it gets, and the address is a closed loopback port.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import tracemalloc
from typing import Any

os.environ.update(
    HOME=tempfile.mkdtemp(prefix="peer-"),
    LMCACHE_USAGE_TRACK_URL="http://127.0.0.1:9/",
    LMCACHE_LOG_LEVEL="ERROR",
    OTEL_SDK_DISABLED="true",
)
for name in ("LMCACHE_TRACK_USAGE", "DO_NOT_TRACK"):
    os.environ.pop(name, None)

from lmcache.usage_telemetry.mp_continuous import MPContinuousUsageReporter  # noqa: E402 - after the environment
from lmcache.v1.mp_observability.event import Event, EventType  # noqa: E402 - after the environment
from lmcache.v1.mp_observability.event_bus import EventBus, EventBusConfig  # noqa: E402 - after the environment

BOUND = 65_536
STORE, RETRIEVE = EventType.MP_STORE_END, EventType.MP_RETRIEVE_END


class Keeping:
    """Takes payloads and sends none."""

    def send(self, url: str, payload: dict[str, Any]) -> None:
        """Forget it."""
        del url, payload


def publish_ns(subscribers: int, events: int) -> float:
    """CPU nanoseconds of the publisher for one event, made and published."""
    bus = EventBus(EventBusConfig(enabled=True, max_queue_size=10 * events))
    for _ in range(subscribers):
        bus.subscribe(STORE, lambda _event: None)
    bus.start()
    publish = bus.publish
    started = time.thread_time_ns()
    for _ in range(events):
        publish(Event(event_type=STORE, metadata={"stored_count": 1, "total_bytes": 1}, session_id="s"))
    spent = time.thread_time_ns() - started
    bus.stop()
    return spent / events


def reporter_ns(events: int) -> float:
    """CPU nanoseconds of the reporter for one store event."""
    reporter = MPContinuousUsageReporter(256, sender=Keeping())
    reporter._flush_thread.stop()  # noqa: SLF001 - keeps the overflow from emptying the buffers
    callback = reporter.get_subscriptions()[STORE]
    made = [Event(event_type=STORE, metadata={"stored_count": 3, "total_bytes": n}) for n in range(events)]
    started = time.thread_time_ns()
    for event in made:
        callback(event)
    return (time.thread_time_ns() - started) / events


def at_the_bound() -> tuple[float, float]:
    """MiB of full buffers, and CPU milliseconds of the flush that empties them."""
    reporter = MPContinuousUsageReporter(256, sender=Keeping())
    reporter._flush_thread.stop()  # noqa: SLF001 - keeps the overflow from emptying the buffers
    callbacks = reporter.get_subscriptions()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(BOUND):
        callbacks[STORE](
            Event(event_type=STORE, metadata={"stored_count": 300 + number, "total_bytes": 10**8 + number})
        )
        callbacks[RETRIEVE](Event(event_type=RETRIEVE, metadata={"retrieved_count": 300 + number}))
    held = (tracemalloc.get_traced_memory()[0] - before) / 2**20
    tracemalloc.stop()
    started = time.thread_time()
    reporter.flush()
    return held, (time.thread_time() - started) * 1e3


def main() -> None:
    """Print one round as JSON for each line read; the benches take turns, so that noise hits both."""
    for line in sys.stdin:
        events = int(line)
        held_mib, flush_ms = at_the_bound()
        figures = {
            "publish_0_ns": publish_ns(0, events),
            "publish_1_ns": publish_ns(1, events),
            "reporter_ns": reporter_ns(events),
            "held_mib": held_mib,
            "flush_ms": flush_ms,
        }
        print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
