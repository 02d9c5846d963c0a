"""A client that says just what it is told. Light to import: test processes that are killed run it too."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
from typing import Any, TypeVar

import msgspec
import zmq

from lmcache_core.server.zmtp import frame
from lmcache_core.wire import messages as wire
from lmcache_core.wire.codec import Encoder, answers
from lmcache_core.wire.messages import Message

MessageT = TypeVar("MessageT", bound=Message)

CHUNK_TOKENS = 4
WIRE_LAYOUT = wire.Layout(
    num_layers=2, num_kv_heads=2, head_size=4, dtype="float32", use_mla=False, format="", groups=()
)
PATIENCE_S = 30.0
READY = frame(b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER", 4)
"""What a client of ZeroMQ says behind its greeting."""


def digests(*chunks: object) -> bytes:
    """Digests of made-up chunks, by name."""
    return b"".join(hashlib.sha256(str(chunk).encode()).digest() for chunk in chunks)


class Talker:
    """One client: a DEALER, and a lifeline once it `attach`es."""

    def __init__(self, address: str, context: zmq.Context[Any]) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
        self.socket.connect(address)
        self.calls = itertools.count(1)
        self.session = 0
        self.registration = 0
        self.lifeline: socket.socket | None = None
        self.arena_fd = -1
        self._encode = Encoder().encode
        self._decode = answers().decode

    # -- words ------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        self.socket.send(self._encode(message))

    def hear(self) -> Message:
        return self._decode(self.socket.recv())

    def ask(self, kind: type[Message], **fields: Any) -> Message:
        """Send a request with the next call number and this session; give its answer."""
        self.say(self.build(kind, **fields))
        return self.hear()

    def ask_for(self, answer: type[MessageT], kind: type[Message], **fields: Any) -> MessageT:
        heard = self.ask(kind, **fields)
        assert isinstance(heard, answer), heard
        return heard

    def build(self, kind: type[Message], **fields: Any) -> Message:
        known = {field.name for field in msgspec.structs.fields(kind)}
        defaults = {
            "call": next(self.calls) if "call" in known else 0,
            "session": self.session,
            "registration": self.registration,
            "salt_hash": "",
            "variant_hash": "",
            "request_id": "",
            "timeout_s": 5.0,
            "prefetch": False,
            "skip_chunks": 0,
        }
        return kind(**{**{name: value for name, value in defaults.items() if name in known}, **fields})

    # -- sentences ----------------------------------------------------------------------

    def hello(self, name: str = "worker", **fields: Any) -> wire.Welcome:
        wanted = {
            "product": wire.PRODUCT,
            "version": "0.1",
            "oldest_protocol": wire.OLDEST_PROTOCOL,
            "protocol": wire.PROTOCOL,
            "features": (),
            "name": name,
            "pid": os.getpid(),
        }
        welcome = self.ask_for(wire.Welcome, wire.Hello, **{**wanted, **fields})
        self.session = welcome.session
        return welcome

    def attach(self, welcome: wire.Welcome) -> bytes:
        """Connect the lifeline; give the greeting."""
        self.lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.lifeline.settimeout(PATIENCE_S)
        self.lifeline.connect(welcome.lifeline)
        self.lifeline.sendall(welcome.ticket)
        greeting, descriptors, _, _ = socket.recv_fds(self.lifeline, 16, 4)
        if descriptors:
            (self.arena_fd,) = descriptors
        return greeting

    def register(self, model_name: str = "m", **fields: Any) -> wire.Registered:
        wanted = {
            "model_name": model_name,
            "model_type": "llama",
            "layout": WIRE_LAYOUT,
            "windows": (),
            "group_kinds": (),
            "world_size": 1,
            "ranks": (0,),
            "block_tokens": 1,
        }
        registered = self.ask_for(wire.Registered, wire.Register, **{**wanted, **fields})
        self.registration = registered.registration
        return registered

    def enter(self, name: str = "worker") -> Talker:
        """Do all that comes before the first store."""
        self.attach(self.hello(name))
        self.register()
        return self

    def lookup(self, *chunks: object, **fields: Any) -> Message:
        wanted = {"digests": (digests(*chunks),), "requested_tokens": len(chunks) * CHUNK_TOKENS}
        return self.ask(wire.Lookup, **{**wanted, **fields})

    def reserve(self, *chunks: object, **fields: Any) -> wire.Reserved:
        return self.ask_for(wire.Reserved, wire.Reserve, digests=digests(*chunks), **fields)

    def store(self, *chunks: object) -> int:
        reserved = self.reserve(*chunks)
        if not reserved.lease:
            return 0
        return self.ask_for(wire.Done, wire.Commit, lease=reserved.lease).count

    def retrieve(self, *chunks: object, **fields: Any) -> wire.Lent:
        return self.ask_for(wire.Lent, wire.Retrieve, digests=digests(*chunks), **fields)

    def give_back(self, lent: wire.Lent, delivered: int | None = None) -> None:
        if lent.lease:
            self.say(
                self.build(
                    wire.Return,
                    lease=lent.lease,
                    delivered_chunks=len(lent.offsets) if delivered is None else delivered,
                )
            )

    def ping(self) -> wire.Pong:
        return self.ask_for(wire.Pong, wire.Ping)

    def die(self) -> None:
        """End as a killed process ends: without a word."""
        self.close()

    def close(self) -> None:
        self.socket.close(0)
        if self.lifeline is not None:
            self.lifeline.close()
            self.lifeline = None
        if self.arena_fd >= 0:
            os.close(self.arena_fd)
            self.arena_fd = -1
