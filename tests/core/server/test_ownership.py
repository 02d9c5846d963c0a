"""Exact ownership whatever clients do and however they end: at rest no lease, no claim, and free + used = total."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import zmq
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.core.server.served import Served, socket_path, until
from tests.core.server.talker import Talker, digests
from tests.memory_store import CHUNK_TOKENS

from lmcache_core.codec.frame import HEADER_BYTES
from lmcache_core.wire import messages as wire

CLIENTS = st.integers(0, 2)
PROMPTS = st.integers(0, 3)
LENGTHS = st.integers(0, 5)
REQUESTS = st.sampled_from(["", "r1", "r2"])


def prompt(number: int, chunks: int) -> list[str]:
    """Prompts 0 and 1 share their first two chunks, as do 2 and 3."""
    return [f"{number // 2 if place < 2 else number + 10}/{place}" for place in range(chunks)]


def payload_of(name: str, size: int) -> bytes:
    """KV that is a pure function of the chunk's name."""
    return digests(name) * (size // 32)


class ServerMachine(RuleBasedStateMachine):
    """Random calls of three clients that are killed and come again, over a small arena and one store."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="lmc")
        self.served = Served(socket_path(Path(self.folder.name)), chunks=6, write_behind_chunks=3)
        self.served.server.start()
        self.context: zmq.Context[Any] = zmq.Context()
        self.clients = [self._come() for _ in range(3)]
        self.filling: list[list[tuple[wire.Reserved, list[str]]]] = [[], [], []]
        self.reading: list[list[tuple[wire.Lent, list[str]]]] = [[], [], []]

    def _come(self) -> tuple[Talker, mmap.mmap]:
        talker = Talker(self.served.server.address, self.context).enter()
        return talker, mmap.mmap(talker.arena_fd, self.served.rig.arena.capacity_bytes)

    @rule(client=CLIENTS, number=PROMPTS, chunks=LENGTHS)
    def reserve(self, client: int, number: int, chunks: int) -> None:
        names = prompt(number, chunks)
        reserved = self.clients[client][0].reserve(*names)
        if reserved.lease:
            self.filling[client].append((reserved, names))

    @rule(client=CLIENTS)
    def fill_and_commit(self, client: int) -> None:
        talker, arena = self.clients[client]
        size = self.served.rig.codec.payload_bytes
        while self.filling[client]:
            reserved, names = self.filling[client].pop()
            for place, offset in zip(reserved.places, reserved.offsets, strict=True):
                start = offset + HEADER_BYTES
                arena[start : start + size] = payload_of(names[place], size)
            assert talker.ask_for(wire.Done, wire.Commit, lease=reserved.lease).count == len(reserved.places)

    @rule(client=CLIENTS)
    def half_fill_and_abandon(self, client: int) -> None:
        talker, arena = self.clients[client]
        while self.filling[client]:
            reserved, _ = self.filling[client].pop()
            for offset in reserved.offsets:
                arena[offset + HEADER_BYTES : offset + HEADER_BYTES + 64] = b"x" * 64
            talker.say(talker.build(wire.Abandon, lease=reserved.lease))

    @rule(client=CLIENTS, number=PROMPTS, chunks=LENGTHS, request=REQUESTS, prefetch=st.booleans())
    def lookup(self, client: int, number: int, chunks: int, request: str, prefetch: bool) -> None:
        answer = self.clients[client][0].lookup(*prompt(number, chunks), request_id=request, prefetch=prefetch)
        assert isinstance(answer, wire.Found), answer
        assert 0 <= answer.l1_chunks <= answer.chunks <= chunks

    @rule(client=CLIENTS, number=PROMPTS, chunks=LENGTHS)
    def forsake(self, client: int, number: int, chunks: int) -> None:
        talker, _ = self.clients[client]
        message = talker.build(
            wire.Lookup, digests=(digests(*prompt(number, chunks)),), requested_tokens=chunks * CHUNK_TOKENS
        )
        talker.say(message)
        talker.say(talker.build(wire.Forsake, lookup_call=message.call))  # type: ignore[attr-defined] # a Lookup
        if not isinstance(talker.ask(wire.Ping), wire.Pong):  # the answer came before it was forsaken
            assert isinstance(talker.hear(), wire.Pong)

    @rule(client=CLIENTS, number=PROMPTS, chunks=LENGTHS, request=REQUESTS)
    def release(self, client: int, number: int, chunks: int, request: str) -> None:
        names = digests(*prompt(number, chunks))
        self.clients[client][0].ask_for(wire.Done, wire.Release, digests=(names,), request_id=request)

    @rule(client=CLIENTS, number=PROMPTS, chunks=LENGTHS, request=REQUESTS, skip=st.integers(0, 5))
    def retrieve(self, client: int, number: int, chunks: int, request: str, skip: int) -> None:
        names = prompt(number, chunks)
        skipped = min(skip, chunks)
        lent = self.clients[client][0].retrieve(*names, request_id=request, skip_chunks=skipped)
        if lent.lease:
            self.reading[client].append((lent, names[skipped:]))

    @rule(client=CLIENTS)
    def read_and_give_back(self, client: int) -> None:
        talker, arena = self.clients[client]
        size = self.served.rig.codec.payload_bytes
        while self.reading[client]:
            lent, names = self.reading[client].pop()
            for name, offset in zip(names, lent.offsets, strict=False):
                start = offset + HEADER_BYTES
                assert arena[start : start + size] == payload_of(name, size)
            talker.give_back(lent)

    @rule(client=CLIENTS)
    def kill(self, client: int) -> None:
        talker, arena = self.clients[client]
        arena.close()
        talker.die()
        self.filling[client], self.reading[client] = [], []
        assert until(lambda: len(self.served.sessions()) == 2)
        self.clients[client] = self._come()

    @rule(client=CLIENTS)
    def clear(self, client: int) -> None:
        self.clients[client][0].ask_for(wire.ClearedTiers, wire.Clear)

    @rule()
    def evict(self) -> None:
        rig = self.served.rig
        rig.arena.release(rig.local.reserve(6, rig.codec.frame_bytes))

    @rule()
    def write_behind(self) -> None:
        self.served.rig.storage.flush(10)

    @invariant()
    def memory_is_exact(self) -> None:
        used, free = self.served.rig.arena.balance()
        assert used + free == self.served.rig.arena.capacity_bytes

    def teardown(self) -> None:
        for talker, arena in self.clients:
            arena.close()
            talker.die()
        assert until(lambda: self.served.sessions() == [])
        self.served.rig.storage.flush(10)
        assert until(self.served.is_exact)
        self.served.rig.local.clear()
        assert self.served.rig.arena.used_bytes == 0
        self.served.close()
        self.context.destroy(0)
        self.folder.cleanup()


TestServer = ServerMachine.TestCase
TestServer.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
