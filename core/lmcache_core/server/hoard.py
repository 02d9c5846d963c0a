"""What connections make the server keep: messages half sent, and answers that are not taken."""

from __future__ import annotations


class Hoard:
    """Who has made the server keep how much, and who for the longest. For the control thread alone.

    A client that is well sends a message in one go and takes its answer, so that what it leaves here is gone in
    a moment. Whoever has left something for the longest is stuck or a stranger, however little it is.

    Args:
        most_bytes: Of all connections together.

    Attributes:
        total_bytes: Kept now.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[bytes, int] = {}
        self.total_bytes = 0

    def note(self, name: bytes, held_bytes: int, *, anew: bool = False) -> None:
        """Take in what is kept of a connection now; `anew` where nothing of it was there before."""
        before = self._held.get(name, 0)
        if before and (anew or not held_bytes):
            del self._held[name]
        if held_bytes:
            self._held[name] = held_bytes
        self.total_bytes += held_bytes - before

    def held_bytes(self, name: bytes) -> int:
        """Say what is kept of a connection."""
        return self._held.get(name, 0)

    def too_much(self) -> bytes | None:
        """Name the connection to end, as all together are too much; None while they are not."""
        return next(iter(self._held), None) if self.total_bytes > self._most_bytes else None
