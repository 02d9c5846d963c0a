"""A TCP proxy that harms what it passes on, as told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from lmcache_core.testing.gate import Gate
from lmcache_core.testing.network_faults import Blackhole, HalfOpen, NetworkFault, Refuse
from lmcache_core.testing.relay import Relay, close
from lmcache_core.testing.schedule import Schedule, Step
from lmcache_core.testing.switchboard import ProxyStatistics, Switchboard

T = TypeVar("T")

_STOP_S = 5.0


class FaultProxy:
    """Stands between a client and a real server. A context manager; safe from any thread.

    Every fault is in force when the call that sets it returns.

    Args:
        to: Host and port of the server. It need not be there.
        listen: Host and port to listen on; port 0 for a free one. Loopback, as nothing here asks who connects.
        seed: Decides which bytes `Corrupt` changes and how `Latency` jitters.

    Example:
        >>> with FaultProxy(to=("127.0.0.1", 6379), seed=7) as proxy:
        ...     client = connect(proxy.host, proxy.port)
        ...     proxy.apply(Latency(0.2))
        ...     proxy.apply(Hang())
        ...     proxy.clear()
        ...     proxy.schedule([(2.0, Hang()), (5.0, Clear())])
    """

    def __init__(self, *, to: tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0), seed: int = 0) -> None:
        self._to = to
        self._gate = Gate(listen)
        self._seed = seed
        self._switchboard = Switchboard()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._accepting = False
        self._relays: dict[asyncio.Task[None], Relay | None] = {}
        self._schedule: Schedule[NetworkFault] | None = None
        self._lock = threading.Lock()

    # -- life -----------------------------------------------------------------

    def start(self) -> None:
        """Listen, and begin to pass connections on.

        Raises:
            OSError: It cannot listen there.
            RuntimeError: It was started before.
        """
        if self._thread is not None:
            raise RuntimeError("the fault proxy was started before; make another one")
        self._gate.bind()
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="fault-proxy", daemon=True)
        self._thread.start()
        self._call(self._put(()))

    def stop(self) -> None:
        """Reset all connections and listen no more. Twice is harmless."""
        self._end_schedule()
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._shut(), loop).result(_STOP_S)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_STOP_S)

    def __enter__(self) -> FaultProxy:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def host(self) -> str:
        """Where it listens."""
        return self._gate.host

    @property
    def port(self) -> int:
        """Where it listens; its own until `stop`, also while connections are refused."""
        return self._gate.port

    # -- faults ---------------------------------------------------------------

    def apply(self, *faults: NetworkFault) -> None:
        """Have these faults in force, for open connections too, and no others; ends a schedule."""
        self._end_schedule()
        self._call(self._put(faults))

    def clear(self) -> None:
        """Have no fault in force; ends a schedule. What was held back passes."""
        self.apply()

    def schedule(self, steps: Iterable[Step[NetworkFault]]) -> Schedule[NetworkFault]:
        """Put faults in force at times, in seconds from now; see also `flapping`. Ends an earlier schedule."""
        self._end_schedule()
        with self._lock:
            self._schedule = Schedule(steps, lambda faults: self._call(self._put(faults)))
            self._schedule.start()
            return self._schedule

    @property
    def faults(self) -> tuple[NetworkFault, ...]:
        """In force now."""
        return tuple(one.fault for one in self._switchboard.applied)

    @property
    def statistics(self) -> ProxyStatistics:
        """What it did since it was made."""
        if self._loop is None:
            return self._switchboard.statistics()
        return self._call(_now(self._switchboard.statistics))

    # -- inside: on the caller's thread ---------------------------------------

    def _end_schedule(self) -> None:
        with self._lock:
            schedule, self._schedule = self._schedule, None
        if schedule is not None:
            schedule.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None:
            work.close()
            raise RuntimeError("the fault proxy is not running; start it first")
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    # -- inside: on the loop's thread -----------------------------------------

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    async def _put(self, faults: tuple[NetworkFault, ...]) -> None:
        # All that harms is done before the first await: no byte that a former fault held back slips through.
        self._switchboard.put(faults)
        refuse, blackhole = self._switchboard.find(Refuse), self._switchboard.find(Blackhole)
        silencing = self._switchboard.find(HalfOpen, Blackhole)
        for relay in self._relays.values():
            if relay is not None and silencing is not None:
                relay.silence(silencing)
        self._end_accepting()
        self._gate.set(listening=refuse is None, full=blackhole is not None)
        if refuse is not None:
            await self._reset_all(refuse)
        elif blackhole is None:
            asyncio.get_running_loop().add_reader(self._gate.listener, self._accept)
            self._accepting = True

    def _end_accepting(self) -> None:
        if self._accepting:
            asyncio.get_running_loop().remove_reader(self._gate.listener)
            self._accepting = False

    def _accept(self) -> None:
        try:
            client, _ = self._gate.listener.accept()
        except OSError:  # it went away again
            return
        client.settimeout(0.0)
        counts = self._switchboard.counts
        counts["connections"] += 1
        task = asyncio.ensure_future(self._pass_on(client, f"{self._seed}/{counts['connections']}"))
        self._relays[task] = None
        counts["open_connections"] = len(self._relays)
        task.add_done_callback(self._forget)
        task.add_done_callback(lambda _: client.close())  # cancelled before it began, nobody else does

    async def _pass_on(self, client: socket.socket, seed: str) -> None:
        task = asyncio.current_task()
        try:
            server = await _connect(self._to)
        except OSError:
            self._switchboard.counts["failed_connects"] += 1
            close(client, reset=True)
            return
        except asyncio.CancelledError:
            close(client, reset=True)
            raise
        relay = Relay(client, server, self._switchboard, seed)
        if task is not None:
            self._relays[task] = relay
        silencing = self._switchboard.find(HalfOpen, Blackhole)
        if silencing is not None:
            relay.silence(silencing)
        await relay.run()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._relays.pop(task, None)
        self._switchboard.counts["open_connections"] = len(self._relays)

    async def _reset_all(self, fault: NetworkFault | None = None) -> None:
        tasks = list(self._relays)
        for task in tasks:
            relay = self._relays.get(task)
            if fault is not None:
                self._switchboard.note([fault])
            if relay is not None:
                relay.end_with_reset()
            else:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shut(self) -> None:
        self._end_accepting()
        await self._reset_all()
        self._gate.close()


async def _connect(to: tuple[str, int]) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(*to, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    server = socket.socket(family, kind, protocol)
    server.settimeout(0.0)
    try:
        await loop.sock_connect(server, address)
    except BaseException:
        server.close()
        raise
    with contextlib.suppress(OSError):  # no TCP
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


async def _now(call: Callable[[], T]) -> T:
    return call()
