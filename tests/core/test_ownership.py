"""Exact ownership under any sequence of calls: at rest no pin, and free + used = total."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.memory_store import CHUNK_TOKENS, LAYOUT, Rig, refuse

from lmcache_core import BackendError, LoadResult

PROMPTS = st.integers(0, 3)
LENGTHS = st.integers(0, 5).map(lambda chunks: chunks * CHUNK_TOKENS)


def prompt(number: int, tokens: int) -> list[int]:
    """Prompts 0 and 1 share their first two chunks, as do 2 and 3."""
    return [(number // 2 if place < 2 * CHUNK_TOKENS else number + 10) * 1000 + place for place in range(tokens)]


def kv_of(tokens: list[int]) -> torch.Tensor:
    """KV that is a pure function of the tokens so far, as a model's is."""
    seed = torch.tensor(tokens, dtype=torch.float64).cumsum(0).to(torch.float32)
    return seed[None, None, :, None].expand(LAYOUT.kv_shape(len(tokens))).contiguous()


class EngineMachine(RuleBasedStateMachine):
    """Random {store, lookup, retrieve, cancel, error, evict, clear} against a small arena and one store."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.faulty = False
        self.rig = Rig(chunks=6, clock=lambda: self.now_s, lease_ttl_s=10.0, write_behind_chunks=3)

    @rule(number=PROMPTS, tokens=LENGTHS)
    def store(self, number: int, tokens: int) -> None:
        ids = prompt(number, tokens)
        self.rig.engine.store(ids, kv_of(ids))

    @rule(number=PROMPTS, tokens=LENGTHS)
    def lookup(self, number: int, tokens: int) -> None:
        assert self.rig.engine.lookup(prompt(number, tokens)) <= tokens

    @rule(number=PROMPTS, tokens=LENGTHS)
    def lookup_then_retrieve(self, number: int, tokens: int) -> None:
        ids = prompt(number, tokens)
        self.rig.storage.flush()
        nothing_else_leased = self.rig.storage.promises == 0
        promised = self.rig.engine.lookup(ids)
        delivered = self._retrieve(ids)
        if nothing_else_leased and not self.faulty:
            assert delivered == promised

    @rule(number=PROMPTS, tokens=LENGTHS)
    def retrieve(self, number: int, tokens: int) -> None:
        self._retrieve(prompt(number, tokens))

    @rule(number=PROMPTS, tokens=LENGTHS)
    def retrieve_into_a_wrong_tensor(self, number: int, tokens: int) -> None:
        assert not self.rig.engine.retrieve(prompt(number, tokens), torch.zeros(3)).any()

    @rule(number=PROMPTS, tokens=LENGTHS)
    def cancel(self, number: int, tokens: int) -> None:
        self.rig.engine.release(prompt(number, tokens))

    @rule(calls=st.sets(st.sampled_from(["contains", "load", "store", "delete"])))
    def fail(self, calls: set[str]) -> None:
        self.faulty = True
        self.rig.stores[0].fault = refuse(*calls, error=BackendError("refused on purpose"))

    @rule(place=st.integers(0, 9), result=st.sampled_from([LoadResult.MISS, LoadResult.CORRUPT, LoadResult.FAILED]))
    def damage(self, place: int, result: LoadResult) -> None:
        self.rig.storage.flush()
        self.faulty = True
        digests = list(self.rig.stores[0].frames)
        if digests:
            self.rig.stores[0].results[digests[place % len(digests)]] = result

    @rule()
    def mend(self) -> None:
        self.faulty = False
        self.rig.stores[0].fault = lambda _call: None
        self.rig.stores[0].results.clear()

    @rule()
    def clear(self) -> None:
        self.rig.engine.clear()

    @rule(hold=st.booleans())
    def switch_local_cpu(self, hold: bool) -> None:
        self.rig.local.set_use_hot(hold)

    @rule(seconds=st.floats(0, 20))
    def expire(self, seconds: float) -> None:
        self.now_s += seconds
        self.rig.storage.sweep()

    @rule()
    def evict(self) -> None:
        self.rig.local.arena.release(self.rig.local.reserve(6))

    def _retrieve(self, ids: list[int]) -> int:
        out = torch.full(LAYOUT.kv_shape(len(ids)), -1.0)
        mask = self.rig.engine.retrieve(ids, out)
        delivered = int(mask.sum())
        assert mask[:delivered].all()
        assert torch.equal(out[:, :, :delivered], kv_of(ids)[:, :, :delivered])
        assert (out[:, :, delivered:] == -1.0).all()
        return delivered

    @invariant()
    def memory_is_exact(self) -> None:
        arena = self.rig.arena
        assert arena.used_bytes + arena.free_bytes == arena.capacity_bytes

    def teardown(self) -> None:
        self.mend()
        self.rig.close()
        assert self.rig.storage.promises == 0
        assert self.rig.arena.blocks == self.rig.local.chunks
        self.rig.local.clear()
        assert self.rig.arena.used_bytes == 0
        assert self.rig.arena.free_bytes == self.rig.arena.capacity_bytes


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
