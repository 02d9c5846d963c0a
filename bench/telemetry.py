"""What usage telemetry costs: the bus, the reporter, its memory and its flush; beside the peer's where it is at hand.

Run: ``python bench/telemetry.py [--peer-python PATH]``, where PATH is the Python of an environment that has
``lmcache==0.5.6``. All times are CPU times of the thread that pays, an event's construction included; a
round of ours and one of the peer's take turns, and ratios are of rounds side by side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

from lmcache_core import Event, EventSubscriber, EventType, TelemetryContext
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.telemetry.outbox import Outbox
from lmcache_core.telemetry.payload import UsageIdentity
from lmcache_core.telemetry.probes import stores_probe
from lmcache_core.telemetry.reporter import MPContinuousUsageReporter
from lmcache_plugins.usage.specs import default_metric_specs

BOUND = 65_536
EVENTS = 50_000
STORE, RETRIEVE = EventType.MP_STORE_END, EventType.MP_RETRIEVE_END
CONTEXT = TelemetryContext(chunk_tokens=256, deployment_mode="mp_server")
WORDS = {
    "publish_0_ns": "publish, no subscriber, ns",
    "publish_1_ns": "publish, one subscriber, ns",
    "reporter_ns": "reporter, one store event, ns",
    "held_mib": "memory at the bound, MiB",
    "flush_ms": "flush at the bound, ms",
}


class Idle:
    """An empty method with the arguments of `publish`."""

    def publish(self, event_type: object, metadata: object, session_id: str) -> None:
        """Do nothing."""


class Listener(EventSubscriber):
    """Hears store events and does nothing."""

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        """Hear store events."""
        return {STORE: lambda _event: None}


class Keeping:
    """Takes bytes and sends none."""

    def send(self, path: str, body: bytes, *, timeout_s: float | None = None) -> str:
        """Say that it arrived."""
        del path, body, timeout_s
        return ""


def spent_ns(publish: Callable[[object, object, str], None], events: int) -> float:
    """CPU nanoseconds of the publisher for one event."""
    started = time.thread_time_ns()
    for _ in range(events):
        publish(STORE, {"num_tokens": 1, "total_bytes": 1}, "s")
    return (time.thread_time_ns() - started) / events


def publish_ns(subscribers: int, events: int) -> float:
    """CPU nanoseconds of the publisher for one event, made and published."""
    bus = EventBus(CacheMetrics(), max_queue_events=10 * events)
    for number in range(subscribers):
        bus.register_subscriber(f"listener-{number}", Listener())
    spent = spent_ns(bus.publish, events)  # type: ignore[arg-type]
    bus.stop(30)
    return spent


def new_reporter() -> MPContinuousUsageReporter:
    """The default metrics, all messages; more of them than the peer has."""
    losses = TelemetryLosses()
    identity = UsageIdentity(session_id="s", machine_id="m", deployment_mode="mp_server")
    return MPContinuousUsageReporter(
        list(default_metric_specs(CONTEXT)),
        outbox=Outbox(Keeping(), lambda: identity, losses),
        losses=losses,
        probes=(stores_probe(lambda: ()),),
    )


def store(number: int) -> Event:
    """A store event as the engine makes it."""
    return Event(STORE, 0.0, {"num_tokens": 300 + number, "total_bytes": 10**8 + number, "model_name": "gpt2"})


def reporter_ns(events: int) -> float:
    """CPU nanoseconds of the reporter for one store event."""
    callback = new_reporter().get_subscriptions()[STORE]
    made = [store(number) for number in range(events)]
    started = time.thread_time_ns()
    for event in made:
        callback(event)
    return (time.thread_time_ns() - started) / events


def at_the_bound() -> tuple[float, float]:
    """MiB of what the same events leave, and CPU milliseconds of the flush."""
    reporter = new_reporter()
    callbacks = reporter.get_subscriptions()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(BOUND):
        callbacks[STORE](store(number))
        callbacks[RETRIEVE](Event(RETRIEVE, 0.0, {"num_tokens": 300 + number, "model_name": "gpt2"}))
    held = (tracemalloc.get_traced_memory()[0] - before) / 2**20
    tracemalloc.stop()
    started = time.thread_time()
    reporter.flush()
    return held, (time.thread_time() - started) * 1e3


def round_of_ours(events: int) -> dict[str, float]:
    """One round."""
    held_mib, flush_ms = at_the_bound()
    return {
        "empty_ns": spent_ns(Idle().publish, events),
        "publish_0_ns": publish_ns(0, events),
        "publish_1_ns": publish_ns(1, events),
        "reporter_ns": reporter_ns(events),
        "held_mib": held_mib,
        "flush_ms": flush_ms,
    }


def round_of_peer(peer: subprocess.Popen[str], events: int) -> dict[str, float]:
    """One round of the child's."""
    if peer.stdin is None or peer.stdout is None:
        raise RuntimeError("the peer was started without pipes")
    peer.stdin.write(f"{events}\n")
    peer.stdin.flush()
    found: dict[str, float] = json.loads(peer.stdout.readline())
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", help="Python that can import lmcache")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--events", type=int, default=EVENTS)
    options = parser.parse_args()
    peer = None
    if options.peer_python:
        command = [options.peer_python, str(Path(__file__).parent / "parts" / "telemetry_peer.py")]
        peer = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(round_of_ours(options.events))
        if peer is not None:
            theirs.append(round_of_peer(peer, options.events))
    empty_ns = statistics.median(each["empty_ns"] for each in ours)
    idle = statistics.median(each["publish_0_ns"] / each["empty_ns"] for each in ours)
    print(f"an empty method call with the same arguments: {empty_ns:.0f} ns; publish without subscriber: {idle:.2f} x")
    print(f"{'':32} {'ours':>9} {'peer':>9} {'ratio':>7}")
    for key, words in WORDS.items():
        line = f"{words:32} {statistics.median(each[key] for each in ours):9.2f}"
        if theirs:
            ratio = statistics.median(a[key] / b[key] for a, b in zip(ours, theirs, strict=True))
            line += f" {statistics.median(each[key] for each in theirs):9.2f} {ratio:7.2f}"
        print(line)
    if peer is not None and peer.stdin is not None:
        peer.stdin.close()
        peer.wait(30)


if __name__ == "__main__":
    main()
