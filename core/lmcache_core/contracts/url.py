"""Address of a store; its credentials never show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreURL:
    """A parsed address such as ``redis://user:secret@cache-1:6379/0``.

    Attributes:
        scheme: Lower case.
        host: Without brackets; ``""`` where there is none.
        port: None where there is none.
        username: Percent-decoded.
        password: Percent-decoded; in no repr and no `str`.
        path: Percent-decoded, with its leading slash.
        query: Percent-decoded pairs; in no repr, as some clients take secrets there.
    """

    scheme: str
    host: str = ""
    port: int | None = None
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    path: str = ""
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def is_scheme(text: object) -> bool:
        """Tell whether a value can be a URL scheme."""
        return isinstance(text, str) and _SCHEME.fullmatch(text) is not None

    @classmethod
    def parse(cls, text: str) -> StoreURL:
        """Read an address.

        Raises:
            ValueError: A sentence that says what is wrong and shows no part of the credentials.
        """
        scheme, separator, rest = text.strip().partition("://")
        if not separator or not cls.is_scheme(scheme.lower()):
            raise ValueError("a store's address starts with scheme://, such as redis://host:6379 or file:///path")
        if "#" in rest:
            raise ValueError(
                f"the {scheme.lower()}:// address has a '#'; "
                "write %23, and percent-encode '/', '?' and '@' in a password"
            )
        try:
            parts = urlsplit(f"{scheme.lower()}://{rest}")
            port = parts.port
        except ValueError:
            # urllib's own message would quote the text, and with it a password.
            raise ValueError(_port_sentence(scheme.lower())) from None
        return cls._of(parts, port)

    @classmethod
    def _of(cls, parts: SplitResult, port: int | None) -> StoreURL:
        if port == 0:
            raise ValueError(_port_sentence(parts.scheme))
        return cls(
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=port,
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            path=unquote(parts.path),
            query=tuple(parse_qsl(parts.query, keep_blank_values=True)),
        )

    def __str__(self) -> str:
        """The address without credentials and query: safe in a log, label or page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{self.scheme}://{host}{port}{self.path}"


def _port_sentence(scheme: str) -> str:
    return (
        f"the {scheme}:// address has no valid port (1 to {_LAST_PORT}) or host; write "
        "scheme://user:password@host:port once, and percent-encode '#', '/', '?', '@', '[' and ']' in a password"
    )
