"""Tells plugins that something changed, each on a thread of its own: one that hangs is skipped and holds nobody up."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lmcache_core.forks import tell_after_fork
from lmcache_core.registry.hooks import blame, describe, discard
from lmcache_core.registry.loaded import LoadedPlugin
from lmcache_core.registry.watched import OverdueError, WatchedCall

log = logging.getLogger(__name__)

_MOST_WAITING = 100
"""Changes that wait for one call to return. Each holds a whole report, and a hook in use is never so far behind."""


class Listener:
    """One plugin's hook that is told something: one call at a time, in order. Safe from any thread; never waits.

    While a call does not return in time, only the newest change waits for it.

    Args:
        plugin: Whose hook.
        hook: Its name.
        limit_s: Seconds from which on a call hangs.
        on_error: Told the plugin's name for a call that raised or hangs, and for each change it is not told of.
    """

    def __init__(self, plugin: LoadedPlugin, hook: str, *, limit_s: float, on_error: Callable[[str], None]) -> None:
        self._plugin = plugin
        self._hook = hook
        self._limit_s = limit_s
        self._on_error = on_error
        self._begin()
        tell_after_fork(self, Listener._begin)

    def _begin(self) -> None:
        """Be idle; in a forked child too, where no thread tells, and a lock may be held for ever."""
        self._changed = threading.Condition()  # guards the three below
        self._waiting: deque[Mapping[str, object]] = deque()
        self._busy = False
        self._hangs = False

    def tell(self, arguments: Mapping[str, object]) -> None:
        """Have the hook called with these arguments; where no thread can be started, at the next change."""
        with self._changed:
            self._waiting.append(arguments)
            skipped = self._skip()
            error = None if self._busy else self._start()
            self._busy = error is None
        self._count(skipped)
        if error is not None:
            late = f"hook {self._hook} is not called before the next change: starting its thread raised"
            log.warning("%s", self._plugin.found.error(f"{late} {describe(error)}"), exc_info=error)
            self._count(1)

    def settle(self, timeout_s: float) -> bool:
        """Wait until it has been told everything; False when that takes too long, or a call hangs."""
        with self._changed:
            self._changed.wait_for(lambda: self._hangs or not self._busy, timeout_s)
            return not self._busy

    def _start(self) -> Exception | None:
        """Start the thread that tells; give why there can be none."""
        try:
            threading.Thread(target=self._run, name=f"lmcache-tell-{self._plugin.found.name}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # too many threads, or no memory for one more
            return error
        return None

    def _run(self) -> None:
        while (arguments := self._next()) is not None:
            self._call(arguments)

    def _next(self) -> Mapping[str, object] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._busy = False
            self._changed.notify_all()
            return None

    def _call(self, arguments: Mapping[str, object]) -> None:
        found, hook = self._plugin.found, self._hook
        call = WatchedCall(
            partial(self._plugin.hooks.call, hook, arguments),
            target=f"{found.name}: {hook}",
            on_late=self._tell_late,
        )
        try:
            self._refuse_coroutine(call.wait(self._limit_s))
        except OverdueError as error:
            skips = "it is told nothing more until it returns"
            log.warning("%s", found.error(f"hook {hook} is still running {error.since}; {skips}"), exc_info=error)
            self._hang()
            call.join()
            with self._changed:
                self._hangs = False
        except BaseException as error:  # noqa: BLE001 - one listener is a border: nothing it raises ends its thread
            self._note(error)

    def _hang(self) -> None:
        with self._changed:
            self._hangs = True
            skipped = self._skip()
            self._changed.notify_all()
        self._count(1 + skipped)

    def _skip(self) -> int:
        """Drop the oldest of too many that wait; give how many."""
        skipped = max(0, len(self._waiting) - (1 if self._hangs else _MOST_WAITING))
        for _ in range(skipped):
            self._waiting.popleft()
        return skipped

    def _tell_late(self, outcome: Callable[[], object]) -> None:
        try:
            self._refuse_coroutine(outcome())
        except BaseException as error:  # noqa: BLE001 - one listener is a border
            self._note(error)
        else:
            back = f"hook {self._hook} has returned after all, and is told of changes again"
            log.warning("%s", self._plugin.found.error(back))

    def _refuse_coroutine(self, result: object) -> None:
        if discard(result):
            raise self._plugin.found.error(f"hook {self._hook} returned a coroutine")

    def _note(self, error: BaseException) -> None:
        log.warning("%s", self._plugin.found.error(blame(self._hook, error)), exc_info=error)
        self._count(1)

    def _count(self, times: int) -> None:
        for _ in range(times):
            self._on_error(self._plugin.found.name)


class Listeners:
    """Every plugin that wants to be told of one thing.

    Args:
        listeners: One for each plugin.
    """

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = tuple(listeners)

    def tell(self, **arguments: object) -> None:
        """Tell them all; waits for none."""
        for one in self._listeners:
            one.tell(arguments)

    def settle(self, timeout_s: float) -> bool:
        """Wait until all have been told everything, but not for one that hangs; False when that takes too long."""
        deadline = time.monotonic() + timeout_s
        settled = [one.settle(max(0.0, deadline - time.monotonic())) for one in self._listeners]
        return all(settled)
