"""Requests about some chunks, made for whichever session will send them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lmcache_core.client.session import Session
from lmcache_core.storage.run import ChunkRun
from lmcache_core.wire.messages import Lookup, Message, Release, Reserve, Retrieve

MakeRequest: TypeAlias = Callable[[Session, int], Message]
"""Makes a request of a session and a call's number; twice where the first session turns out to be over."""

_SERVERS_SHARE = 0.9
"""Of the time left, what the server may use; the rest is for its answer to arrive."""


def lookup(
    runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float, prefetch: bool
) -> MakeRequest:
    """Count and promise leading chunks, one run a rank."""
    names = runs[0].namespace
    digests = tuple([b"".join(run.digests) for run in runs])
    return lambda session, call: Lookup(
        call,
        session.number,
        session.registration,
        names.salt_hash,
        names.variant_hash,
        request_id,
        digests,
        requested_tokens,
        prefetch,
        _servers_share_s(deadline),
        runs[0].rest_tokens,
    )


def release(runs: Sequence[ChunkRun], request_id: str) -> MakeRequest:
    """Give up a promise, one run a rank."""
    names = runs[0].namespace
    digests = tuple([b"".join(run.digests) for run in runs])
    return lambda session, call: Release(
        call,
        session.number,
        session.registration,
        names.salt_hash,
        names.variant_hash,
        request_id,
        digests,
    )


def reserve(run: ChunkRun, request_id: str) -> MakeRequest:
    """Ask for blocks to fill."""
    names, digests = run.namespace, b"".join(run.digests)
    return lambda session, call: Reserve(
        call,
        session.number,
        session.registration,
        names.salt_hash,
        names.variant_hash,
        request_id,
        digests,
        run.rest_tokens,
    )


def retrieve(run: ChunkRun, request_id: str, *, skip_chunks: int, deadline: float) -> MakeRequest:
    """Ask for blocks to read."""
    names, digests = run.namespace, b"".join(run.digests)
    return lambda session, call: Retrieve(
        call,
        session.number,
        session.registration,
        names.salt_hash,
        names.variant_hash,
        request_id,
        digests,
        skip_chunks,
        _servers_share_s(deadline),
        run.rest_tokens,
    )


def _servers_share_s(deadline: float) -> float:
    return max(0.0, (deadline - time.monotonic()) * _SERVERS_SHARE)
