"""Sends messages one by one and remembers how that went."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lmcache_core.contracts.message import UsageMessage
from lmcache_core.telemetry.guard import TelemetryLosses, note_telemetry_error
from lmcache_core.telemetry.payload import UsageIdentity, build_usage_payload, encode

log = logging.getLogger(__name__)

BAD_VALUE = "bad_value"
ERROR = "error"
UNREACHABLE = frozenset({"timeout", "dns", "refused", "tls", "connection"})
"""Reasons for which the next message need not be tried at once."""


class Sender(Protocol):
    """What carries bytes to the collector; `UsageMessageSender` is one."""

    def send(self, path: str, body: bytes, *, timeout_s: float | None = None) -> str:
        """Post one message; give ``""`` or why it did not arrive."""


@dataclass(frozen=True, slots=True)
class LastResult:
    """How the last message fared.

    Attributes:
        at_s: Seconds since the epoch.
        message_type: Which message.
        reason: ``""`` when it arrived, else why not.
    """

    at_s: float
    message_type: str
    reason: str


class Outbox:
    """Sends each message once: what does not arrive is dropped and counted. Never raises.

    Args:
        sender: To the collector.
        identity: Asked at the first message, as it may touch the disk.
        losses: Where errors are counted.
        on_result: Told of each result, on the sending thread.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        sender: Sender,
        identity: Callable[[], UsageIdentity],
        losses: TelemetryLosses,
        *,
        on_result: Callable[[LastResult], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sender = sender
        self._make_identity = identity
        self._identity: UsageIdentity | None = None
        self._losses = losses
        self._on_result = on_result
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self.last: LastResult | None = None

    def send(self, message: UsageMessage, timeout_s: float | None = None) -> str:
        """Send one message; give ``""`` when it arrived, else why not."""
        name = type(message).__name__
        try:
            reason = self._send(message, timeout_s)
        except ValueError as error:
            note_telemetry_error(self._losses, name, error)
            reason = BAD_VALUE
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the border of one telemetry send
            note_telemetry_error(self._losses, "send", error)
            reason = ERROR
        self._note(LastResult(self._clock(), name, reason))
        return reason

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Messages by type and outcome, ``sent`` or why not."""
        with self._lock:
            return dict(self._counts)

    def _send(self, message: UsageMessage, timeout_s: float | None) -> str:
        if self._identity is None:
            self._identity = self._make_identity()
        body = encode(build_usage_payload(message, self._identity))
        return self._sender.send(message.ENDPOINT, body, timeout_s=timeout_s)

    def _note(self, result: LastResult) -> None:
        with self._lock:
            self._counts[result.message_type, result.reason or "sent"] += 1
        before, self.last = self.last, result
        if result.reason and (before is None or before.reason != result.reason):
            log.info("usage telemetry: %s did not arrive: %s", result.message_type, result.reason)
        if self._on_result is not None:
            try:
                self._on_result(result)
            except Exception as error:  # noqa: BLE001 - the border of one telemetry send: the note of it is only that
                note_telemetry_error(self._losses, "last result", error)
