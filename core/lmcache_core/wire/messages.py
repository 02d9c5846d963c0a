"""Messages between a cache server and its clients, and their one encoding.

Each message is one ZeroMQ frame: msgspec's MessagePack of an array whose first element is the tag.
A client's DEALER socket talks to the server's ROUTER. ``call`` is chosen by the client and comes back
in the answer, so that an answer nobody waits for any more is told from the next one. Every request
but the one-way ones (`Abandon`, `Return`, `Forsake`, `Bye`) gets exactly one answer.

Digests of a request's chunks travel as one byte string, 32 bytes each: that is the bulk of a message
and is copied once. Payload never travels; `Reserved` and `Lent` give offsets into the shared arena.
``rest_tokens`` is how many tokens the last of these chunks has where it is not full, else 0.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

PROTOCOL = 1
"""Version that this package speaks; raised when a message changes its meaning."""

OLDEST_PROTOCOL = 1
"""Oldest version it still understands."""

PRODUCT = "lmcache-core"
"""A client or server of anything else is told so and refused."""

MOST_MESSAGE_BYTES = 4 << 20
"""A longer message is refused unread: 4 MiB hold the digests of 32 million tokens at 256 a chunk."""

DIGEST_BYTES = 32


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=True):
    """One message; the class name is its tag."""


# -- from client to server --------------------------------------------------


class Hello(Message, frozen=True):
    """Open a session. Protocol versions are an inclusive range; `features` are wishes.

    ``plugins`` are those in force in the client: name, distribution, version.
    """

    call: int
    product: str
    version: str
    oldest_protocol: int
    protocol: int
    features: tuple[str, ...]
    name: str
    pid: int
    plugins: tuple[tuple[str, str, str], ...] = ()


class Layout(Message, frozen=True):
    """A `KVLayout` without behaviour; ``groups`` are (name, kind, layers)."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    dtype: str
    use_mla: bool
    format: str
    groups: tuple[tuple[str, str, int], ...]


class Register(Message, frozen=True):
    """Say what will be stored. Several ranks are for a lookup on behalf of all of them.

    ``windows`` are the tokens that each of the layout's groups attends to, 0 for all; empty where all do.
    """

    call: int
    session: int
    model_name: str
    model_type: str
    layout: Layout
    windows: tuple[int, ...]
    group_kinds: tuple[str, ...]
    world_size: int
    ranks: tuple[int, ...]
    block_tokens: int


class Lookup(Message, frozen=True):
    """Count and promise leading chunks; ``digests`` has one byte string a rank. `prefetch` loads them."""

    call: int
    session: int
    registration: int
    salt_hash: str
    variant_hash: str
    request_id: str
    digests: tuple[bytes, ...]
    requested_tokens: int
    prefetch: bool
    timeout_s: float
    rest_tokens: int = 0


class Forsake(Message, frozen=True):
    """Nobody waits for this lookup any more: drop what it promised or will promise. One-way."""

    session: int
    lookup_call: int


class Release(Message, frozen=True):
    """Give up the promise of a request."""

    call: int
    session: int
    registration: int
    salt_hash: str
    variant_hash: str
    request_id: str
    digests: tuple[bytes, ...]


class Reserve(Message, frozen=True):
    """Ask for blocks to fill, for those chunks that are neither kept nor being filled by another."""

    call: int
    session: int
    registration: int
    salt_hash: str
    variant_hash: str
    request_id: str
    digests: bytes
    rest_tokens: int = 0


class Commit(Message, frozen=True):
    """The blocks of a reservation are filled; keep them."""

    call: int
    session: int
    lease: int


class Abandon(Message, frozen=True):
    """The blocks of a reservation will not be filled. One-way."""

    session: int
    lease: int


class Retrieve(Message, frozen=True):
    """Ask for the blocks of the leading chunks, behind the first ``skip_chunks``."""

    call: int
    session: int
    registration: int
    salt_hash: str
    variant_hash: str
    request_id: str
    digests: bytes
    skip_chunks: int
    timeout_s: float
    rest_tokens: int = 0


class Return(Message, frozen=True):
    """Give lent blocks back; so many of them were used. One-way."""

    session: int
    lease: int
    delivered_chunks: int


class Clear(Message, frozen=True):
    """Drop every chunk of the tiers that are the server's own."""

    call: int
    session: int


class Ping(Message, frozen=True):
    """Ask for boot id and health; session 0 where there is none."""

    call: int
    session: int


class Status(Message, frozen=True):
    """Ask for the whole status; needs no session."""

    call: int


class Bye(Message, frozen=True):
    """End the session. One-way."""

    session: int


# -- from server to client --------------------------------------------------


class Welcome(Message, frozen=True):
    """A session is open. ``lifeline`` is the path of the Unix socket that hands out the arena; ``""`` for none.

    ``plugins`` are those in force in the server.
    """

    call: int
    protocol: int
    version: str
    features: tuple[str, ...]
    boot_id: str
    session: int
    ticket: bytes
    lifeline: str
    arena_bytes: int
    plugins: tuple[tuple[str, str, str], ...] = ()


class Registered(Message, frozen=True):
    """The layout is served under this number, in chunks of so many tokens; perhaps with a rest that is no full one."""

    call: int
    registration: int
    chunk_tokens: int
    frame_bytes: int
    save_unfull_chunk: bool = False


class Found(Message, frozen=True):
    """So many leading chunks are promised, so many of them from memory."""

    call: int
    chunks: int
    l1_chunks: int


class Reserved(Message, frozen=True):
    """Blocks to fill: which chunks of the request, and where in the arena each frame begins."""

    call: int
    lease: int
    places: tuple[int, ...]
    offsets: tuple[int, ...]


class Lent(Message, frozen=True):
    """Blocks to read, of the chunks behind the skipped ones, in order; lease 0 and no offset for none."""

    call: int
    lease: int
    offsets: tuple[int, ...]


class Done(Message, frozen=True):
    """It is done; so many chunks (or promises, of a `Release`)."""

    call: int
    count: int


class ClearedTiers(Message, frozen=True):
    """What a clear did: (backend, chunks, leased, reason) a tier."""

    call: int
    tiers: tuple[tuple[str, int, int, str], ...]


class Pong(Message, frozen=True):
    """Boot id and health; session is False where the server does not know it."""

    call: int
    boot_id: str
    healthy: bool
    reason: str
    session_known: bool


class StatusReport(Message, frozen=True):
    """The status as one JSON document."""

    call: int
    document: bytes


class Refused(Message, frozen=True):
    """Why a request was not served. `code` is one of `RefusalCode`'s words; `message` a whole sentence."""

    call: int
    code: str
    message: str
    boot_id: str


class RefusalCode:
    """Words of `Refused.code`."""

    PROTOCOL = "protocol"
    """The versions do not meet, or the other side is another product."""
    SESSION = "session"
    """No such session: the server has restarted, or ended it. Say `Hello` again."""
    LAYOUT = "layout"
    """The layout cannot be cached correctly."""
    REGISTRATION = "registration"
    """No such registration in this session."""
    LEASE = "lease"
    """No such lease in this session."""
    MALFORMED = "malformed"
    """The message could not be understood or is too long."""
    UNHEALTHY = "unhealthy"
    """The cache is unhealthy; recompute."""
    BUSY = "busy"
    """Too many requests wait for slow tiers, or too many sessions are open."""
    UNSUPPORTED = "unsupported"
    """This server lends no blocks: it only answers lookups; see `Welcome.features`."""
    INTERNAL = "internal"
    """A fault of the server, logged there."""


Request: TypeAlias = (
    Hello
    | Register
    | Lookup
    | Forsake
    | Release
    | Reserve
    | Commit
    | Abandon
    | Retrieve
    | Return
    | Clear
    | Ping
    | Status
    | Bye
)
Answer: TypeAlias = Welcome | Registered | Found | Reserved | Lent | Done | ClearedTiers | Pong | StatusReport | Refused
