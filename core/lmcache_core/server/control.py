"""The cache server's parts, joined."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmcache_core.access.local import LocalAccess
from lmcache_core.contracts.control import ThreadReport
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.errors import ConfigError
from lmcache_core.forks import tell_after_fork
from lmcache_core.memory.arena import Arena
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.metrics.server import ServerCollector, ServerTally
from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.server.blocks import BlockCalls
from lmcache_core.server.desk import Desk, Holdings
from lmcache_core.server.endpoint import Endpoint
from lmcache_core.server.gate import Gate
from lmcache_core.server.greetings import GreetingCalls, Place
from lmcache_core.server.lifeline import Lifeline
from lmcache_core.server.lookups import LookupCalls
from lmcache_core.server.loop import ControlLoop
from lmcache_core.server.promises import PromiseLedger
from lmcache_core.server.registration import RegistrationBook
from lmcache_core.server.slow import SlowCalls
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.messages import Register
from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

_SLOW_WORKERS = 16
_MOST_SLOW_CALLS = 128
"""Calls that may wait for further tiers at once; each has a deadline, so they cannot pile up for long."""
_ERRAND_WORKERS = 2
_MOST_ERRANDS = 16
_END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Parts:
    endpoint: Endpoint
    loop: ControlLoop
    lifeline: Lifeline
    desk: Desk
    slow_calls: tuple[SlowCalls, SlowCalls]
    pools: tuple[WorkerPool, WorkerPool]


class ControlServer:
    """Serves clients of other processes: their calls, and their deaths.

    One thread owns the control socket and every session. What tier 0 alone can answer is answered on it
    at once; what must ask a further tier waits elsewhere, so that a slow tier delays nobody else.

    Args:
        address: Where to listen.
        arena: Shared memory; None to answer lookups only.
        open_format: Makes the access for a layout and its `Register`; raises LayoutError.
        on_registered: Told of a model's first registration: namespace, layout, model type.
        is_healthy: Whether the cache is to be used; must cost no more than a method call.
        reason: Why it is not.
        status: The whole status, as JSON values; called on another thread.
        metrics: Where the server's families go while the address is claimed.
        timeout_s: Longest that any call may take.
        plugins: Those in force in this process.
        environ: Says where the runtime directory is.

    Attributes:
        boot_id: New with each server, so that clients see a restart.
    """

    def __init__(
        self,
        address: ServerAddress,
        *,
        arena: Arena | None,
        open_format: Callable[[KVLayout, Register], LocalAccess],
        on_registered: Callable[[KeyNamespace, KVLayout, str], None],
        is_healthy: Callable[[], bool],
        reason: Callable[[], str],
        status: Callable[[], Mapping[str, Any]],
        metrics: CacheMetrics,
        timeout_s: float,
        plugins: PluginSet = PluginSet(),  # noqa: B008 - immutable
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.boot_id = uuid.uuid4().hex
        self._address = address
        self._arena = arena
        self._book = RegistrationBook(open_format, on_registered)
        self._status = status
        self._plugins = plugins
        self._registry = metrics.registry
        self._environ = environ
        self._tally = ServerTally()
        self._collector = ServerCollector(self._tally, self)
        self._gate = Gate(
            is_healthy=is_healthy,
            reason=reason,
            timeout_s=timeout_s,
            lends=arena is not None,
            is_attached=self._is_attached,
        )
        self._parts: _Parts | None = None

    # -- life -----------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where clients find it; with the port that was given, once claimed."""
        return str(self._address)

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        parts = self._parts  # once: it goes when the server stops
        return parts is not None and parts.loop.is_alive

    def claim(self) -> None:
        """Take the address without answering yet.

        Raises:
            ConfigError: It is taken or cannot be used; says by whom or why.
        """
        endpoint = Endpoint(self._address, self._tally, self._environ)
        self._address = endpoint.address
        ring = endpoint.switchboard.ring
        slow_calls = (
            SlowCalls(_MOST_SLOW_CALLS, _SLOW_WORKERS, ring),
            SlowCalls(_MOST_ERRANDS, _ERRAND_WORKERS, ring),
        )
        pools = (
            WorkerPool("lmcache-server-slow", _SLOW_WORKERS),
            WorkerPool("lmcache-server-errand", _ERRAND_WORKERS),
        )
        loop = ControlLoop(endpoint, slow_calls, self._tally, self.boot_id)
        lifeline = self._lifeline(endpoint, loop)
        desk = self._furnish(endpoint, lifeline, slow_calls, pools)
        self._parts = _Parts(endpoint, loop, lifeline, desk, slow_calls, pools)
        tell_after_fork(self, ControlServer._forked)
        self._registry.register(self._collector)

    def start(self) -> None:
        """Answer; claims the address first where that has not been done.

        Raises:
            ConfigError: See `claim`.
        """
        if self._parts is None:
            self.claim()
        if self._parts is not None:
            self._parts.lifeline.start()
            self._parts.loop.start(self._parts.desk)

    def drain(self) -> None:
        """Refuse new sessions, lookups, reservations and retrieves; what is under way goes on."""
        self._gate.stopping = True

    def stop(self, drain_s: float = 0.0) -> bool:
        """Drain for at most so long, end every session and let go of the address.

        Returns:
            False when something was still under way; what it gets is given back when it is over.
        """
        self.drain()
        parts = self._parts
        if parts is None:
            return True
        at_rest = parts.loop.wait_at_rest(drain_s) if drain_s > 0 else True
        ended = parts.loop.end(_END_TIMEOUT_S)
        for calls in parts.slow_calls:
            calls.close()
        for pool in parts.pools:
            pool.close()
        if ended:
            parts.endpoint.say_last()  # before the lifeline ends, by which clients know that nothing more will come
        parts.lifeline.stop()
        if ended:
            parts.endpoint.close()
        else:
            log.error(
                "the server's thread did not end within %.0f s; its address is let go with the process", _END_TIMEOUT_S
            )
        self._registry.unregister(self._collector)
        self._parts = None  # until here the drain asks it which clients are alive
        return at_rest and ended

    def _forked(self) -> None:
        """In a forked child there is no server; its copies of the parent's connections would outlive the parent."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.lifeline.disown()
            parts.endpoint.disown()

    def _lifeline(self, endpoint: Endpoint, loop: ControlLoop) -> Lifeline:
        arena_fd = -1 if self._arena is None else self._arena.fd
        try:
            return Lifeline(
                endpoint.lifeline, arena_fd=arena_fd, on_end=loop.session_died, accept=endpoint.spare.accept
            )
        except OSError as error:
            endpoint.close()
            raise ConfigError(f"server_address: {self._address}: {error.strerror or error}") from error

    def _furnish(
        self,
        endpoint: Endpoint,
        lifeline: Lifeline,
        slow_calls: tuple[SlowCalls, SlowCalls],
        pools: tuple[WorkerPool, WorkerPool],
    ) -> Desk:
        holdings = Holdings(
            book=self._book,
            promises=PromiseLedger(),
            slow=slow_calls[0],
            watcher=lifeline,
            tally=self._tally,
            boot_id=self.boot_id,
        )
        desk = Desk(holdings)
        place = Place(
            lifeline=endpoint.lifeline_path,
            arena_bytes=0 if self._arena is None else self._arena.capacity_bytes,
            status=self._status,
            plugins=self._plugins,
        )
        greetings = GreetingCalls(holdings, self._gate, desk=desk, place=place, errands=slow_calls[1], pool=pools[1])
        desk.serve_anyone(greetings.open_handlers())
        desk.serve(greetings.handlers())
        desk.serve(LookupCalls(holdings, self._gate, pools[0]).handlers())
        desk.serve(BlockCalls(holdings, self._gate, pools[0]).handlers())
        return desk

    # -- how it fares; any thread --------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Tell of sessions and calls, as JSON values."""
        parts = self._parts
        sessions = [] if parts is None else parts.desk.describe(time.monotonic())
        calls = [(outcome, number) for _, outcome, number in self._tally.calls()]
        return {
            "boot_id": self.boot_id,
            "sessions": sessions,
            "connections": {} if parts is None else parts.endpoint.switchboard.describe(),
            "counters": {
                "calls": sum(number for _, number in calls),
                "refused_calls": sum(number for outcome, number in calls if outcome in {"refused", "failed"}),
            },
            "arena": {"leased_bytes": sum(session["leased_bytes"] for session in sessions)},
        }

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how the threads fare without which nothing is answered, or nothing given back."""
        parts = self._parts
        return () if parts is None else (*parts.loop.threads(), *parts.lifeline.threads())

    def session_count(self) -> int:
        """Sessions that are open."""
        parts = self._parts
        return 0 if parts is None else len(parts.desk.sessions)

    def lease_counts(self) -> tuple[int, int]:
        """Leases that are being filled, and that are being read."""
        parts = self._parts
        return (0, 0) if parts is None else parts.desk.lease_counts()

    def oldest_lease_s(self) -> float:
        """Seconds that the oldest of them has been out; 0 for none."""
        parts = self._parts
        sessions = [] if parts is None else parts.desk.describe(time.monotonic())
        return max((one["oldest_lease_s"] or 0.0 for one in sessions), default=0.0)

    def slow_count(self) -> int:
        """Calls that wait for further tiers."""
        parts = self._parts
        return 0 if parts is None else len(parts.slow_calls[0])

    def _is_attached(self, session: int) -> bool:
        parts = self._parts
        return parts is not None and parts.lifeline.is_attached(session)
