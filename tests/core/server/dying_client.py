"""A client that goes as far as it is told, says so, and waits to be killed. Run as a process."""

from __future__ import annotations

import mmap
import sys
import time
from typing import Any

import zmq
from tests.core.server.talker import CHUNK_TOKENS, Talker, digests

from lmcache_core.wire import messages as wire

FRAME_BYTES = 640
LOOKUP = {"digests": (digests("a", "b"),), "requested_tokens": 2 * CHUNK_TOKENS, "request_id": "r"}


def go(step: str, address: str) -> None:
    """Take one step after the other, up to this one; it is over when this returns."""
    context: zmq.Context[Any] = zmq.Context()
    talker = Talker(address, context)
    welcome = talker.hello("doomed")
    if step == "welcomed":
        return
    talker.attach(welcome)
    if step == "attached":
        return
    talker.register()
    if step == "registered":
        return
    if step in {"reserved", "half written", "committed"}:
        store(talker, step, welcome.arena_bytes)
    elif step == "promised":
        talker.ask_for(wire.Found, wire.Lookup, **LOOKUP)
    elif step in {"slow lookup", "slow prefetch"}:
        talker.say(
            talker.build(wire.Lookup, **{**LOOKUP, "digests": (digests("x"),)}, prefetch=step == "slow prefetch")
        )
        talker.ping()
    elif step == "slow retrieve":
        talker.say(talker.build(wire.Retrieve, digests=digests("x")))
        talker.ping()
    else:
        retrieve(talker, step, welcome.arena_bytes)


def store(talker: Talker, step: str, arena_bytes: int) -> None:
    reserved = talker.reserve("new 1", "new 2")
    if step == "reserved":
        return
    with mmap.mmap(talker.arena_fd, arena_bytes) as arena:
        arena[reserved.offsets[0] : reserved.offsets[0] + FRAME_BYTES // 2] = b"x" * (FRAME_BYTES // 2)
    if step == "committed":
        talker.ask_for(wire.Done, wire.Commit, lease=reserved.lease)


def retrieve(talker: Talker, step: str, arena_bytes: int) -> None:
    talker.ask_for(wire.Found, wire.Lookup, **LOOKUP)
    lent = talker.retrieve("a", "b", request_id="r")
    if step == "lent":
        return
    with mmap.mmap(talker.arena_fd, arena_bytes) as arena:
        assert len(arena[lent.offsets[0] : lent.offsets[0] + FRAME_BYTES]) == FRAME_BYTES
    if step == "returned":
        talker.give_back(lent)
        talker.ping()


if __name__ == "__main__":
    go(sys.argv[1], sys.argv[2])
    print("there", flush=True)
    time.sleep(600)
