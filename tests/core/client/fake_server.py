"""A peer that speaks the protocol over real sockets and does whatever a test tells it, right or wrong."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import zmq

from lmcache_core.codec.frame import FrameCodec
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.messages import (
    Abandon,
    Clear,
    ClearedTiers,
    Commit,
    Done,
    Found,
    Hello,
    Lent,
    Lookup,
    Message,
    Ping,
    Pong,
    Register,
    Registered,
    Release,
    Request,
    Reserve,
    Reserved,
    Retrieve,
    Status,
    StatusReport,
    Welcome,
)

Reply = Message | bytes | None
"""What goes back: a message, any bytes, or nothing."""

DIGEST_BYTES = 32
LIMIT_S = 30.0


class FakeServer:
    """Serves from a thread; a context manager.

    Args:
        layout: Of the clients.
        chunk_tokens: As it says it.
        blocks: In its arena; 0 for no arena.
    """

    def __init__(self, layout: KVLayout, *, chunk_tokens: int = 4, blocks: int = 16) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmc-"))
        self.address = ServerAddress(path=self.folder / "s.sock")
        self.chunk_tokens = chunk_tokens
        self.frame_bytes = FrameCodec(layout, chunk_tokens).frame_bytes
        self.stride_bytes = -(-self.frame_bytes // 4096) * 4096
        self.blocks = blocks
        self.boot_id = "boot-1"
        self.healthy, self.reason = True, ""
        self.kept: dict[bytes, int] = {}
        """Offset of the block of each digest."""
        self.reserved: dict[int, tuple[list[bytes], list[int]]] = {}
        self.sessions: set[int] = set()
        self.received: list[Request] = []
        self.overrides: dict[type[Any], Callable[[Any], Reply | Sequence[Reply]]] = {}
        self._next = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- life -------------------------------------------------------------------

    def __enter__(self) -> FakeServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Listen, with a new arena."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        self._router.bind(str(self.address))
        self._listener = socket.socket(socket.AF_UNIX)
        self.lifeline_path = str(self.folder / f"l{self._next}")
        self._listener.bind(self.lifeline_path)
        self._listener.listen()
        self.memory = os.memfd_create(self.memory_name(self.boot_id))
        self.arena_bytes = self.blocks * self.stride_bytes
        os.ftruncate(self.memory, self.arena_bytes)
        self.lifelines: list[socket.socket] = []
        self._bell, self._ring = socket.socketpair()
        self._frozen = threading.Event()
        self._thawed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="fake-server")
        self._thread.start()

    def die(self) -> None:
        """Drop everything at once, as a kernel does for a killed process."""
        if self._thread is None:
            return
        self.thaw()
        self._ring.send(b"q")
        self._thread.join()
        self._thread = None
        for one in (*self.lifelines, self._listener, self._bell, self._ring):
            one.close()
        os.close(self.memory)
        self._router.close()
        self._context.term()
        self.sessions.clear()
        self.kept.clear()
        self.reserved.clear()

    def restart(self, boot_id: str = "boot-2") -> None:
        """Die and be back at once as another."""
        self.die()
        self.boot_id = boot_id
        self.start()

    def freeze(self) -> None:
        """Answer nothing more; the connections stay."""
        self._thawed.clear()
        self._frozen.set()

    def thaw(self) -> None:
        """Answer everything that has come meanwhile."""
        self._frozen.clear()
        self._thawed.set()

    # -- what a test asks ---------------------------------------------------------

    def on(self, kind: type[Any], reply: Callable[[Any], Reply | Sequence[Reply]]) -> None:
        """Answer these messages so; a sequence is several answers."""
        self.overrides[kind] = reply

    def wait_for(self, kind: type[Any], count: int = 1) -> Any:
        """Wait until so many such messages came; give the last."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all(kind)) >= count, LIMIT_S), f"no {kind.__name__} came"
            return self.all(kind)[count - 1]

    def all(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]

    def memory_name(self, boot_id: str) -> str:
        """Of the arena, as `/proc/<pid>/maps` shows it."""
        return f"fake-arena-{self.folder.name}-{boot_id}"

    def end_lifelines(self, word: bytes = b"") -> None:
        """End them, as a death does, or behind a word."""
        for one in self.lifelines:
            one.sendall(word)
            one.shutdown(socket.SHUT_RDWR)

    # -- inside -------------------------------------------------------------------

    def _serve(self) -> None:
        decode = msgspec.msgpack.Decoder(Request).decode
        poller = zmq.Poller()
        for one in (self._router, self._listener.fileno(), self._bell.fileno()):
            poller.register(one, zmq.POLLIN)
        while True:
            ready = [what for what, _ in poller.poll()]
            if self._bell.fileno() in ready:
                return
            if self._listener.fileno() in ready:
                self._hand_out(self._listener.accept()[0])
            if self._router in ready:
                who, frame = self._router.recv_multipart()
                if self._frozen.is_set():
                    self._thawed.wait()
                self._reply(who, decode(frame))

    def _hand_out(self, connection: socket.socket) -> None:
        self.lifelines.append(connection)
        connection.settimeout(LIMIT_S)
        connection.recv(16)
        if self.blocks:
            socket.send_fds(connection, [b"."], [self.memory])
        else:
            connection.send(b".")

    def _reply(self, who: bytes, message: Any) -> None:
        default = getattr(self, f"_{type(message).__name__.lower()}", lambda _: None)
        replies = self.overrides.get(type(message), default)(message)
        with self._changed:  # before the answer: who has it may look
            self.received.append(message)
            self._changed.notify_all()
        for reply in replies if isinstance(replies, list | tuple) else [replies]:
            if reply is not None:
                frame = reply if isinstance(reply, bytes) else msgspec.msgpack.encode(reply)
                self._router.send_multipart([who, frame])

    def number(self) -> int:
        self._next += 1
        return self._next

    def _hello(self, message: Hello) -> Reply:
        session = self.number()
        self.sessions.add(session)
        lifeline, size = self.lifeline_path, self.arena_bytes if self.blocks else 0
        return Welcome(message.call, 1, "9.9", (), self.boot_id, session, b"t" * 16, lifeline, size)

    def _register(self, message: Register) -> Reply:
        return Registered(message.call, 7, self.chunk_tokens, self.frame_bytes)

    def _ping(self, message: Ping) -> Reply:
        known = message.session in self.sessions
        return Pong(message.call, self.boot_id, self.healthy, self.reason, known)

    def _lookup(self, message: Lookup) -> Reply:
        chunks = min(self._leading(split(digests)) for digests in message.digests)
        return Found(message.call, chunks, chunks)

    def _release(self, message: Release) -> Reply:
        return Done(message.call, 1)

    def _reserve(self, message: Reserve) -> Reply:
        missing = [(place, one) for place, one in enumerate(split(message.digests)) if one not in self.kept]
        lease = self.number()
        busy = {*self.kept.values(), *(offset for _, offsets in self.reserved.values() for offset in offsets)}
        free = [block * self.stride_bytes for block in range(self.blocks) if block * self.stride_bytes not in busy]
        offsets = free[: len(missing)]
        self.reserved[lease] = ([one for _, one in missing], offsets)
        return Reserved(message.call, lease, tuple(place for place, _ in missing), tuple(offsets))

    def _commit(self, message: Commit) -> Reply:
        digests, offsets = self.reserved.pop(message.lease)
        self.kept.update(zip(digests, offsets, strict=True))
        return Done(message.call, len(offsets))

    def _abandon(self, message: Abandon) -> Reply:
        self.reserved.pop(message.lease, None)
        return None

    def _retrieve(self, message: Retrieve) -> Reply:
        digests = split(message.digests)
        found = digests[message.skip_chunks : self._leading(digests)]
        return Lent(message.call, self.number(), tuple(self.kept[one] for one in found))

    def _clear(self, message: Clear) -> Reply:
        return ClearedTiers(message.call, (("LocalCPUBackend", len(self.kept), 0, ""),))

    def _status(self, message: Status) -> Reply:
        return StatusReport(message.call, msgspec.json.encode({"boot_id": self.boot_id}))

    def _leading(self, digests: Sequence[bytes]) -> int:
        return next((place for place, one in enumerate(digests) if one not in self.kept), len(digests))


def split(digests: bytes) -> list[bytes]:
    return [digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)]


def until(true: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Wait for what another thread does."""
    end = time.monotonic() + limit_s
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return true()
