"""The first words on a new connection: user, database, and what kind of server this is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from lmcache_core import BackendError, BackendTimeoutError, BackendUsage
from lmcache_plugins.redis.address import RedisAddress
from lmcache_plugins.redis.connect import open_wire
from lmcache_plugins.redis.refusal import CLUSTER_SENTENCE, refused
from lmcache_plugins.redis.resp import ConnectionLostError, ProtocolError, Refusal, command
from lmcache_plugins.redis.wire import Wire

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What INFO says, as text by name; empty where the user may not ask."""

    fields: dict[str, str]

    @classmethod
    def of(cls, reply: int | bytes | Refusal | None) -> ServerInfo:
        """Read a reply to INFO."""
        if not isinstance(reply, bytes):
            return cls({})
        pairs = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
        return cls({name: value for name, colon, value in pairs if colon})

    @property
    def usage(self) -> BackendUsage:
        """The server's memory, whoever uses it."""
        return BackendUsage(
            bytes_used=self._bytes("used_memory", unknown=-1),
            capacity_bytes=self._bytes("maxmemory", unknown=0),
        )

    def _bytes(self, name: str, *, unknown: int) -> int:
        text = self.fields.get(name, "")
        return int(text) if text.isdecimal() else unknown


def open_session(address: RedisAddress, *, who: str, deadline: float) -> Wire:
    """Connect and be let in.

    Raises:
        BackendTimeoutError: No answer in time.
        BackendError: No connection, or not let in.
    """
    wire = open_wire(address, who=who, deadline=deadline)
    wire.deadline = deadline
    greetings = []
    if address.username or address.password:
        words = [word.encode() for word in (address.username, address.password)]
        greetings.append(command(b"AUTH", *(words if address.username else words[1:])))
    if address.db:
        greetings.append(command(b"SELECT", b"%d" % address.db))
    greetings.append(command(b"PING"))
    refusals = []
    try:
        wire.send(greetings, replies=len(greetings))
        for _ in greetings:
            reply = wire.reply()
            if isinstance(reply, Refusal):
                refusals.append(reply)
    except TimeoutError as error:
        wire.close()
        raise BackendTimeoutError(f"{who}: connected, but no answer before the deadline") from error
    except (OSError, ConnectionLostError, ProtocolError) as error:
        wire.close()
        if not refusals:  # else the refusal, such as of too many clients, says why it closed
            raise _failed_greeting(error, address, who) from error
    if refusals:
        wire.close()
        raise refused(refusals[0], who=who, secret=address.password)
    return wire


def read_info(wire: Wire, *sections: bytes) -> ServerInfo:
    """Ask for sections of INFO; a user without that right learns nothing and loses nothing."""
    wire.send([command(b"INFO", section) for section in sections], replies=len(sections))
    fields: dict[str, str] = {}
    for _ in sections:
        fields.update(ServerInfo.of(wire.reply()).fields)
    return ServerInfo(fields)


def refuse_cluster(info: ServerInfo, *, who: str) -> None:
    """Say at the first call what would else come out as a redirection at some key.

    Raises:
        BackendError: The server runs in cluster mode.
    """
    if info.fields.get("cluster_enabled") == "1":
        raise BackendError(f"{who}: {CLUSTER_SENTENCE}")


def notices_of(info: ServerInfo, *, ttl_s: int) -> tuple[str, ...]:
    """Tell of an eviction policy that will surprise later."""
    policy = info.fields.get("maxmemory_policy", "")
    if policy == "noeviction":
        notice = "the server's maxmemory-policy is noeviction, so that it refuses chunks when it is full; "
        return (notice + "set maxmemory and allkeys-lru",)
    if policy.startswith("volatile-") and not ttl_s:
        notice = f"the server's maxmemory-policy is {policy}, which evicts only keys that expire, but ttl_s is 0; "
        return (notice + "set ttl_s, or allkeys-lru on the server",)
    return ()


def log_notices(info: ServerInfo, notices: Sequence[str], *, who: str) -> None:
    """Write them into the log, once at the first connection."""
    if "maxmemory_policy" not in info.fields:
        log.info("%s: the user may not read INFO, so memory and eviction policy are unknown", who)
    for notice in notices:
        log.warning("%s: %s", who, notice)


def _failed_greeting(error: Exception, address: RedisAddress, who: str) -> BackendError:
    if isinstance(error, ProtocolError):
        return BackendError(f"{who}: got {error}; {_hint(address)}")
    return BackendError(f"{who}: the server closed the connection at the first word; {_hint(address)}")


def _hint(address: RedisAddress) -> str:
    if address.tls:
        return "is this a Redis server, and does it ask for a client certificate (cert_file, key_file)?"
    return "if its port speaks TLS, write rediss:// instead of redis://"
