"""``lmcachectl fault``: harm a store's connections on purpose, to see what a cache makes of it.

Here and not among the other commands, as nothing else may import this package.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import click

from lmcache_core.errors import ConfigError, LMCacheError
from lmcache_core.testing.fault_proxy import FaultProxy
from lmcache_core.testing.network_faults import (
    Blackhole,
    Corrupt,
    Cut,
    Drip,
    ErrorReply,
    HalfOpen,
    Hang,
    Latency,
    NetworkFault,
    Refuse,
)
from lmcache_core.testing.schedule import flapping

_LAST_PORT = 65535
_ERRORS: Mapping[str, Callable[..., ErrorReply]] = {
    "oom": ErrorReply.oom,
    "loading": ErrorReply.loading,
    "readonly": ErrorReply.readonly,
    "noauth": ErrorReply.noauth,
}


@click.group()
def fault() -> None:
    """Harm connections on purpose, for drills."""


@fault.command()
@click.option("--to", required=True, metavar="HOST:PORT", help="The server behind it.")
@click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Port 0: a free one.")
@click.option("--latency-ms", type=click.FloatRange(min=0), default=0.0, help="Replies come so much later.")
@click.option("--jitter-ms", type=click.FloatRange(min=0), default=0.0, help="And up to so much later again.")
@click.option("--refuse", is_flag=True, help="Refuse connections and reset those that are open.")
@click.option("--blackhole", is_flag=True, help="Leave connecting without an answer, and open ones silent.")
@click.option("--hang", is_flag=True, help="Take requests and never reply.")
@click.option("--half-open", is_flag=True, help="Let nothing pass any more, not even the end of a connection.")
@click.option("--drip-bytes-per-s", type=click.FloatRange(min=0, min_open=True), help="Let replies trickle.")
@click.option("--cut-after-bytes", type=click.IntRange(min=0), help="End a connection after so many bytes of replies.")
@click.option("--corrupt-every-bytes", type=click.IntRange(min=1), help="Change one byte in so many of the replies.")
@click.option("--error", "errors", type=click.Choice(sorted(_ERRORS)), multiple=True, help="Answer as Redis would so.")
@click.option("--command", "commands", multiple=True, help="Only these commands get --error; else the usual ones.")
@click.option("--up-s", type=click.FloatRange(min=0), default=0.0, help="Work for so long before it fails.")
@click.option("--down-s", type=click.FloatRange(min=0, min_open=True), help="Fail for so long, then work, and so on.")
@click.option("--for-s", type=click.FloatRange(min=0, min_open=True), help="End after so long; else with Ctrl-C.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same harm.")
def proxy(
    *, to: str, listen: str, up_s: float, down_s: float | None, for_s: float | None, seed: int, **asked: Any
) -> None:
    """Stand between a cache and its server, and harm what passes.

    Point the cache at the address that is printed. Without a fault everything passes. With --up-s and --down-s the
    faults come and go. What happened is printed at the end.
    """
    faults = _faults(asked)
    made = FaultProxy(to=_address("--to", to), listen=_address("--listen", listen, least_port=0), seed=seed)
    with ExitStack() as stack:
        try:
            stack.enter_context(made)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise LMCacheError(f"--listen: cannot listen on {listen}: {reason}") from error
        ended = stack.enter_context(_end_signals())
        if up_s or down_s:
            made.schedule([(up_s, faults)] if down_s is None else flapping(*faults, up_s=up_s, down_s=down_s))
        else:
            made.apply(*faults)
        click.echo(f"listening on {made.host}:{made.port} for {to}: {_described(faults)}")
        ended.wait(for_s)
        statistics = made.statistics
    click.echo(
        f"{statistics.connections} connection(s), {statistics.failed_connects} of them without the server, "
        f"{statistics.request_bytes} bytes of requests, {statistics.reply_bytes} of replies"
    )
    for name, times in sorted(statistics.applied.items()):
        click.echo(f"{name}: {times}")


def _faults(asked: Mapping[str, Any]) -> list[NetworkFault]:
    if asked["commands"] and not asked["errors"]:
        raise click.UsageError("--command belongs to --error; name one")
    faults: list[NetworkFault] = []
    if asked["latency_ms"] or asked["jitter_ms"]:
        faults.append(Latency(asked["latency_ms"] / 1000, asked["jitter_ms"] / 1000))
    for name, kind in (("refuse", Refuse), ("blackhole", Blackhole), ("hang", Hang), ("half_open", HalfOpen)):
        if asked[name]:
            faults.append(kind())
    if asked["drip_bytes_per_s"] is not None:
        faults.append(Drip(asked["drip_bytes_per_s"]))
    if asked["cut_after_bytes"] is not None:
        faults.append(Cut(asked["cut_after_bytes"]))
    if asked["corrupt_every_bytes"] is not None:
        faults.append(Corrupt(every_bytes=asked["corrupt_every_bytes"]))
    chosen = (asked["commands"],) if asked["commands"] else ()
    return [*faults, *(_ERRORS[name](*chosen) for name in asked["errors"])]


def _described(faults: list[NetworkFault]) -> str:
    return ", ".join(type(fault).__name__ for fault in faults) or "no fault"


def _address(option: str, text: str, *, least_port: int = 1) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not least_port <= int(port) <= _LAST_PORT:
        raise ConfigError(f"{option}: {text!r} is no HOST:PORT, such as 127.0.0.1:6379")
    return host, int(port)


@contextmanager
def _end_signals() -> Iterator[threading.Event]:
    """Give what Ctrl-C or a plain kill sets, instead of ending the process."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
