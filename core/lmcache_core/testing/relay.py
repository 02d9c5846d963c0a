"""One connection through the proxy: both sockets, both directions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import Any

from lmcache_core.testing.network_faults import NetworkFault, Way
from lmcache_core.testing.resp import Conversation
from lmcache_core.testing.shaper import Piece, Shaper
from lmcache_core.testing.switchboard import Switchboard

log = logging.getLogger(__name__)

_PIECE_BYTES = 256 * 1024
_PIECES_AHEAD = 16
"""Read and not yet passed on; more would hide from a sender that its bytes do not get through."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends a reset


class EndedError(Exception):
    """A fault ends this connection."""


class Stream:
    """One direction: what was read waits here until the faults let it pass."""

    def __init__(self, way: Way, source: socket.socket, target: socket.socket, seed: str) -> None:
        self.way = way
        self.source = source
        self.target = target
        self.queue: asyncio.Queue[Piece] = asyncio.Queue(_PIECES_AHEAD)
        self.shaper = Shaper(way, f"{seed}/{way.name}")

    async def put(self, data: bytes) -> None:
        """Add bytes to pass on; empty for the end."""
        await self.queue.put(Piece(data, asyncio.get_running_loop().time(), set()))


class Relay:
    """Passes bytes between a client and the server, as the faults in force let it. Event loop only.

    Args:
        client: Accepted, not blocking.
        server: Connected, not blocking.
        switchboard: Faults and counters.
        seed: Text that no other connection has.
    """

    def __init__(self, client: socket.socket, server: socket.socket, switchboard: Switchboard, seed: str) -> None:
        self._sockets = (client, server)
        self._switchboard = switchboard
        self._requests = Stream(Way.REQUESTS, client, server, seed)
        self._replies = Stream(Way.REPLIES, server, client, seed)
        self._conversation = Conversation(switchboard.answer)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._silent = False
        self._reset = False

    async def run(self) -> None:
        """Pass bytes on until both sides have ended, one broke, or a fault or `end_with_reset` ends it; closes both.

        Never cancel it: sockets are closed only once nothing uses them.
        """
        streams = (self._requests, self._replies)
        tasks = [asyncio.ensure_future(work(stream)) for stream in streams for work in (self._read, self._write)]
        passing = asyncio.gather(*tasks)
        ends: list[asyncio.Future[Any]] = [passing, self._ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, passing, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, (OSError, EndedError)):
                log.error("the fault proxy broke and ended a connection", exc_info=outcome)
        for one in self._sockets:
            close(one, reset=self._reset)

    def silence(self, fault: NetworkFault) -> None:
        """Let no byte and no end of a connection pass any more."""
        if not self._silent:
            self._silent = True
            self._switchboard.note([fault])

    def end_with_reset(self) -> None:
        """Have `run` close both sockets with a reset, soon; nothing passes any more."""
        self._silent = self._reset = True
        if not self._ended.done():
            self._ended.set_result(None)

    async def _read(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await loop.sock_recv(stream.source, _PIECE_BYTES)
            except OSError:
                if not self._silent:
                    raise
                data = b""
            if not data:
                await stream.put(b"")
                return
            if self._silent:
                continue
            if stream.way is Way.REQUESTS:
                data, ours = self._conversation.requests(data)
                if ours:
                    await self._replies.put(ours)
            else:
                data = self._conversation.replies(data)
            if data:
                await stream.put(data)

    async def _write(self, stream: Stream) -> None:
        while True:
            piece = await stream.queue.get()
            last = not piece.data
            while not self._silent and await self._move(stream, piece):
                pass
            if last:
                if not self._silent:
                    with contextlib.suppress(OSError):  # it may have ended already
                        stream.target.shutdown(socket.SHUT_WR)
                return

    async def _move(self, stream: Stream, piece: Piece) -> bool:
        """Do the next move with a piece; False when it is done."""
        loop = asyncio.get_running_loop()
        move = stream.shaper.next(piece, self._switchboard.applied, loop.time())
        self._switchboard.note(move.faults)
        if move.data:
            await loop.sock_sendall(stream.target, move.data)
            self._switchboard.counts["request_bytes" if stream.way is Way.REQUESTS else "reply_bytes"] += len(move.data)
            piece.data = piece.data[len(move.data) :]
        if move.ends is not None:
            self._reset = move.ends.reset
            raise EndedError
        if move.wait_s != 0:
            await self._switchboard.wait_change(move.wait_s)
            return bool(piece.data) or not move.data
        return bool(piece.data)


def close(one: socket.socket, *, reset: bool) -> None:
    """Close a socket, in order or with a reset."""
    if reset:
        with contextlib.suppress(OSError):  # it may have ended already
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    one.close()
