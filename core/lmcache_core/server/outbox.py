"""Answers that wait until their client takes them."""

from __future__ import annotations

import socket
from collections import deque

_ENTRY_BYTES = 16
"""What is kept beside each message."""


class Outbox:
    """What one connection has not taken yet. For the control thread alone.

    Its length is in bytes: of the messages, and of what is kept beside them.
    """

    __slots__ = ("_head_sent", "_leases", "_raw", "_sizes")

    def __init__(self) -> None:
        self._raw = bytearray()
        self._sizes: deque[int] = deque()
        self._leases: deque[int | None] = deque()
        self._head_sent = 0

    def __len__(self) -> int:
        return len(self._raw) + _ENTRY_BYTES * len(self._sizes)

    def put(self, raw: bytes, lease: int | None, *, sent: int = 0) -> None:
        """Keep a message, the first bytes of which may have been sent.

        Args:
            raw: All of it.
            lease: Handed out in it, 0 for none; None where it is no answer.
            sent: So many of its bytes; only of the first.
        """
        self._raw += raw[sent:] if sent else raw
        self._head_sent += sent
        self._sizes.append(len(raw))
        self._leases.append(lease)

    def send(self, connection: socket.socket) -> None:
        """Send what the system takes now.

        Raises:
            OSError: As `socket.send`; nothing was sent.
        """
        sent = connection.send(self._raw, socket.MSG_NOSIGNAL)
        del self._raw[:sent]
        self._head_sent += sent
        while self._sizes and self._head_sent >= self._sizes[0]:
            self._head_sent -= self._sizes.popleft()
            self._leases.popleft()

    def empty(self) -> list[int | None]:
        """Forget all; give the leases of the messages that have not been sent whole, as they were `put`."""
        lost = list(self._leases)
        self._raw.clear()
        self._sizes.clear()
        self._leases.clear()
        self._head_sent = 0
        return lost
