"""Blocks lent to another process stay what they are until they come back, whatever happens to the chunk."""

from __future__ import annotations

import time

import pytest
from tests.engine_calls import TOKENS, MakeRig, forget_local, some_kv

from lmcache_core.tokens.hashing import token_array


def deadline() -> float:
    return time.monotonic() + 5.0


def test_blocks_that_the_cache_does_not_keep_are_lent_all_the_same(make_rig: MakeRig) -> None:
    rig = make_rig(use_hot=False)
    rig.engine.store(TOKENS, some_kv(len(TOKENS)))
    forget_local(rig)
    run = rig.format.run(token_array(TOKENS), "", "")

    lease = rig.access.lend(run, "r", skip_chunks=0, deadline=deadline())

    assert len(lease.blocks) == 2
    assert rig.arena.blocks == 2
    lease.release()
    assert rig.arena.used_bytes == 0


def test_a_retain_that_is_refused_retains_nothing(make_rig: MakeRig) -> None:
    arena = make_rig().arena
    kept, freed = arena.allocate(8), arena.allocate(8)
    assert kept is not None
    assert freed is not None
    arena.release([freed])

    with pytest.raises(RuntimeError, match="is used after it was freed"):
        arena.retain([kept, freed])

    arena.release([kept])
    assert arena.used_bytes == 0
