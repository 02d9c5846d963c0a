"""Why a call to a cache server came to nothing. None of these reaches an inference engine."""

from __future__ import annotations

from typing import ClassVar

from lmcache_core.errors import LMCacheError


class ServerCallError(LMCacheError):
    """A call to the cache server came to nothing.

    Attributes:
        reason: Its word in ``lmcache:request_errors``.
    """

    kind: ClassVar[str] = "failed"

    @property
    def reason(self) -> str:
        """Word for counting: ``server_gone``, ``late``, ``confused``, ``too_long`` or ``refused_<code>``."""
        return self.kind


class ServerGoneError(ServerCallError):
    """There is no server, or it ended before it answered."""

    kind = "server_gone"


class ServerLateError(ServerCallError):
    """The server gave no answer before the deadline."""

    kind = "late"


class ServerConfusedError(ServerCallError):
    """The server's answer makes no sense, so nothing of it is used."""

    kind = "confused"


class RequestTooLongError(ServerCallError):
    """A request was longer than any server reads, and was not sent."""

    kind = "too_long"


class ServerRefusedError(ServerCallError):
    """The server said no.

    Args:
        code: One of `RefusalCode`'s words.
        message: The server's own sentence.
        boot_id: Of the server that said it.
    """

    def __init__(self, code: str, message: str, boot_id: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.boot_id = boot_id

    @property
    def reason(self) -> str:
        """Word for counting."""
        return f"refused_{self.code}"
