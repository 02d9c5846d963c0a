"""What a server that stops in order says, so that its clients can tell that from a death."""

from __future__ import annotations

LAST_WORD = b"\x02"
"""Said on each lifeline right before its end. Clients that do not know it take it as the end, which it is."""

STOPPING = "the server is stopping"
"""Why such a server refuses what is new."""
