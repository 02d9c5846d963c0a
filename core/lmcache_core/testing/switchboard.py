"""Which faults are in force at a proxy, and what they did."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lmcache_core.testing.network_faults import ErrorReply, NetworkFault
from lmcache_core.testing.shaper import Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyStatistics:
    """What a proxy did since it was made.

    Attributes:
        connections: Accepted.
        open_connections: Now.
        failed_connects: Accepted, but the server could not be reached; they were reset.
        request_bytes: Passed on to the server.
        reply_bytes: Passed on to clients, replies of the proxy's own included.
        applied: How often each kind of fault did something, by its class's name: pieces for `Latency`,
            `Hang` and `Drip`, connections for `Refuse`, `Blackhole`, `HalfOpen` and `Cut`, bytes for `Corrupt`,
            replies for `ErrorReply`. Connections that were refused while they were made are not seen.
    """

    connections: int
    open_connections: int
    failed_connects: int
    request_bytes: int
    reply_bytes: int
    applied: Mapping[str, int]


class Switchboard:
    """The faults in force, and counters. Used on the proxy's event loop only."""

    def __init__(self) -> None:
        self.applied: tuple[Applied, ...] = ()
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._numbered = 0
        self._changed = asyncio.Event()

    def put(self, faults: Sequence[NetworkFault]) -> None:
        """Have these in force, and no others."""
        self.applied = tuple(Applied(self._numbered + place, fault) for place, fault in enumerate(faults))
        self._numbered += len(faults)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_change(self, timeout_s: float | None) -> None:
        """Return when other faults are in force, or after a while; None for no limit."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)

    def find(self, *kinds: type[NetworkFault]) -> NetworkFault | None:
        """Give a fault in force of these kinds."""
        return next((one.fault for one in self.applied if isinstance(one.fault, kinds)), None)

    def answer(self, command: bytes) -> bytes | None:
        """Give the error that a command gets instead of the server's reply."""
        for one in self.applied:
            if isinstance(one.fault, ErrorReply) and one.fault.answers(command):
                self.note([one.fault])
                return b"-%s\r\n" % one.fault.text.encode()
        return None

    def note(self, faults: Iterable[NetworkFault]) -> None:
        """Count what faults did."""
        self.faults.update(type(fault).__name__ for fault in faults)

    def statistics(self) -> ProxyStatistics:
        """Give all counts as of now."""
        return ProxyStatistics(
            connections=self.counts["connections"],
            open_connections=self.counts["open_connections"],
            failed_connects=self.counts["failed_connects"],
            request_bytes=self.counts["request_bytes"],
            reply_bytes=self.counts["reply_bytes"],
            applied=dict(self.faults),
        )
