"""The thread that owns the control socket and every session."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence

from lmcache_core.contracts.control import ThreadReport
from lmcache_core.errors import WireError
from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.desk import Desk
from lmcache_core.server.endpoint import Endpoint
from lmcache_core.server.slow import SlowCalls
from lmcache_core.threads import ThreadLevel
from lmcache_core.wire.codec import Encoder, call_of, requests
from lmcache_core.wire.messages import Message, RefusalCode, Refused

log = logging.getLogger(__name__)

_TIDY_GAP_S = 0.5
_LEAST_LOG_GAP_S = 10.0


class ControlLoop:
    """Answers until told to end; no message and no fault of a part ends it.

    Args:
        endpoint: Whose connections are answered.
        slow_calls: Whose work is done elsewhere.
        tally: To count in.
        boot_id: For refusals.
    """

    def __init__(self, endpoint: Endpoint, slow_calls: Sequence[SlowCalls], tally: ServerTally, boot_id: str) -> None:
        self._switchboard = endpoint.switchboard
        self._slow_calls = tuple(slow_calls)
        self._tally = tally
        self._boot_id = boot_id
        self._dead: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._say = endpoint.switchboard.say
        self._encode = Encoder().encode
        self._decode = requests().decode
        self._tidy_at_s = 0.0
        self._log_at_s = 0.0
        self._ended = False
        self._seen_s = 0.0
        self._at_rest = threading.Event()
        self._thread: threading.Thread | None = None

    # -- any thread -------------------------------------------------------------------

    def start(self, desk: Desk) -> None:
        """Begin to answer with what the desk says."""
        self._seen_s = time.monotonic()
        thread = threading.Thread(target=self._run, args=(desk,), name="lmcache-server", daemon=True)
        thread.start()
        self._thread = thread  # not before: who looks at that moment must not take it for dead

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        return self._thread is not None and self._thread.is_alive()

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how its thread fares; nothing before it starts and once it was told to end."""
        thread = self._thread
        if thread is None:
            return ()
        is_alive = self.is_alive
        if self._ended:  # asked last: one that has just ended as it was told to is no dead one
            return ()
        return (
            ThreadReport(
                name=thread.name,
                level=ThreadLevel.CRITICAL.value,
                is_alive=is_alive,
                silent_s=max(0.0, time.monotonic() - self._seen_s),
                interval_s=_TIDY_GAP_S,
            ),
        )

    def session_died(self, number: int) -> None:
        """Say that a session's client is gone."""
        self._dead.put(number)
        self._switchboard.ring()

    def wait_at_rest(self, timeout_s: float) -> bool:
        """Wait until no session holds a lease and no call is under way; False when that takes too long."""
        self._at_rest.clear()
        self._switchboard.ring()
        return self._at_rest.wait(timeout_s) if self.is_alive else False

    def end(self, timeout_s: float) -> bool:
        """Answer no more, and end every session; False when that takes too long."""
        self._ended = True
        self._switchboard.ring()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_alive

    # -- its own thread ---------------------------------------------------------------

    def _run(self, desk: Desk) -> None:
        while not self._ended:
            try:
                self._serve(desk)
            except BaseException:  # noqa: PERF203 - the border of this thread: it must never end
                self._tally.count_refusal(RefusalCode.INTERNAL)
                now_s = time.monotonic()
                if now_s >= self._log_at_s:
                    self._log_at_s = now_s + _LEAST_LOG_GAP_S
                    log.exception("the server's thread goes on after a fault (told once in 10 s)")
        desk.end_all("is ended, as the server stops")

    def _serve(self, desk: Desk) -> None:
        """Answer until told to end; flat, as each call pays for every step here, with a cold cache."""
        receive, decode, answer, clock = self._switchboard.receive, self._decode, desk.answer, time.monotonic
        while not self._ended:
            heard = receive()
            if heard is None:
                self._look_around(desk)
                continue
            began_s = clock()
            sender, body, frames = heard
            reply: Message | None
            if frames == 1:
                try:
                    reply = answer(decode(body), sender, began_s)
                except WireError as error:
                    reply = self._malformed(call_of(body), str(error))
            else:
                reply = self._malformed(0, f"a message has one frame, and {frames} came")
            if reply is not None:
                self._send(desk, sender, reply)
            if began_s >= self._tidy_at_s:
                self._look_around(desk)

    def _malformed(self, call: int, sentence: str) -> Message:
        self._tally.count_refusal(RefusalCode.MALFORMED)
        return Refused(call, RefusalCode.MALFORMED, sentence, self._boot_id)

    def _send(self, desk: Desk, sender: bytes, answer: Message) -> None:
        lease = getattr(answer, "lease", 0)
        try:
            frame = self._encode(answer)
        except WireError as error:
            desk.take_back(lease)
            lease = 0
            call = getattr(answer, "call", 0)
            frame = self._encode(
                Refused(call, RefusalCode.INTERNAL, f"the answer cannot be sent: {error}", self._boot_id)
            )
        self._say(sender, frame, lease)  # never waits: what a frozen client does not take is dropped

    def _look_around(self, desk: Desk) -> None:
        self._seen_s = time.monotonic()
        while not self._dead.empty():
            desk.end(self._dead.get(), "has died")
        for calls in self._slow_calls:
            for slow in calls.over():
                answer = desk.settle(slow)
                if answer is not None:
                    self._send(desk, slow.sender, answer)
        while lease := self._switchboard.next_lost():
            desk.take_back(lease)
        now_s = time.monotonic()
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + _TIDY_GAP_S
            self._switchboard.tidy()
            desk.tidy()
        if not any(map(len, self._slow_calls)) and not any(desk.lease_counts()):
            self._at_rest.set()
