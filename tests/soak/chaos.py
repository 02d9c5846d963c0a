"""What goes wrong during a soak, and when: deaths, freezes and restarts at random times of one seed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable

from tests.redis_server import RedisServer
from tests.soak.server_process import ServerProcess
from tests.soak.staff import Staff

_KILL_GAP_S = (0.5, 3.0)
_STOP_GAP_S = (6.0, 15.0)
_STOPPED_S = (0.2, 4.0)
_FREEZE_GAP_S = (8.0, 20.0)
_FROZEN_S = (0.5, 5.0)
_RESTART_GAP_S = (4.0, 8.0)


class Chaos:
    """Does what is due; one thread.

    Args:
        staff: The workers.
        redis: Behind the server.
        server: Killed and ended only with `restarts`.
        rng: Decides.
        restarts: Whether the server is restarted too.

    Attributes:
        counts: What was done.
        stopped: Workers that stood still for a while, so that their calls took long.
    """

    def __init__(
        self, staff: Staff, redis: RedisServer, server: ServerProcess, rng: random.Random, *, restarts: bool
    ) -> None:
        self._staff = staff
        self._redis = redis
        self._server = server
        self._rng = rng
        self._frozen = False
        self._kills_next = True
        self.stopped: set[int] = set()
        self.counts: Counter[str] = Counter()
        self._deeds: list[tuple[tuple[float, float], Callable[[], None]]] = [
            (_KILL_GAP_S, self._kill_a_worker),
            (_STOP_GAP_S, self._stop_a_worker),
            (_FREEZE_GAP_S, self._freeze_redis),
        ]
        if restarts:
            self._deeds.append((_RESTART_GAP_S, self._restart_server))
        self._due = [(rng.uniform(*gap), gap, deed) for gap, deed in self._deeds]
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._now_s = 0.0

    def act(self, now_s: float) -> None:
        """Do all that is due, so many seconds after the start."""
        self._now_s = now_s
        for at_s, deed in [one for one in self._later if one[0] <= now_s]:
            self._later.remove((at_s, deed))
            deed()
        for place, (at_s, gap, deed) in enumerate(self._due):
            if at_s <= now_s:
                self._due[place] = (now_s + self._rng.uniform(*gap), gap, deed)
                deed()

    def end(self) -> None:
        """Let everything that stands still go on."""
        self._later.clear()
        for pid in self.stopped:
            _send(pid, signal.SIGCONT)
        self._redis.resume()

    def _kill_a_worker(self) -> None:
        number, pid = self._staff.choose(self._rng)
        if pid:
            self.counts["kills"] += 1
            self._staff.kill(pid)
            self._staff.hire(number)

    def _stop_a_worker(self) -> None:
        _, pid = self._staff.choose(self._rng)
        if pid:
            self.counts["stopped workers"] += 1
            self.stopped.add(pid)
            _send(pid, signal.SIGSTOP)
            self._after(_STOPPED_S, lambda: _send(pid, signal.SIGCONT))

    def _freeze_redis(self) -> None:
        if not self._frozen:
            self._frozen = True
            self.counts["freezes"] += 1
            self._redis.pause()
            self._after(_FROZEN_S, self._thaw_redis)

    def _thaw_redis(self) -> None:
        self._frozen = False
        self._redis.resume()

    def _restart_server(self) -> None:
        """Kill it and end it in turns, so that both happen in however short a soak."""
        kills, self._kills_next = self._kills_next, not self._kills_next
        if kills:
            self.counts["server kills"] += 1
            self._server.kill()
        else:
            self.counts["server ends"] += 1
            code = self._server.terminate()
            if code:
                raise AssertionError(f"the server ended with {code} after SIGTERM")
        self._server.start()

    def _after(self, span_s: tuple[float, float], deed: Callable[[], None]) -> None:
        self._later.append((self._now_s + self._rng.uniform(*span_s), deed))


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
