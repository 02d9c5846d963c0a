"""What the two sides of a connection must agree on before anything else."""

from __future__ import annotations

from lmcache_core.wire.messages import OLDEST_PROTOCOL, PRODUCT, PROTOCOL, Hello

BLOCKS = "blocks"
"""Feature of a server: it lends blocks of shared memory, so that a client can store and retrieve."""

PREFETCH = "prefetch"
"""Feature of a server: a lookup may load what further tiers have."""


def agree(hello: Hello, version: str, *, oldest: int = OLDEST_PROTOCOL, newest: int = PROTOCOL) -> int | str:
    """Choose the newest protocol that both sides speak.

    Args:
        hello: The client's.
        version: The server's own, for the sentence.
        oldest: Oldest protocol that the server speaks.
        newest: Newest one.

    Returns:
        The protocol, or a sentence that names both versions.
    """
    if hello.product != PRODUCT:
        return (
            f"server {PRODUCT} {version} speaks its own protocol {_range(oldest, newest)}, "
            f"client {hello.product[:80]!r} {hello.version[:80]} "
            "is another product; connect to a server of that product"
        )
    chosen = min(newest, hello.protocol)
    if chosen < max(oldest, hello.oldest_protocol):
        return (
            f"server {PRODUCT} {version} speaks protocol {_range(oldest, newest)}, "
            f"client {PRODUCT} {hello.version[:80]} speaks {_range(hello.oldest_protocol, hello.protocol)}"
        )
    return chosen


def _range(oldest: int, newest: int) -> str:
    return str(newest) if oldest == newest else f"{oldest} to {newest}"
