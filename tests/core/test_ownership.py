"""Exact ownership under any sequence of calls: at rest no pin, no claim, and free + used = total."""

from __future__ import annotations

import time

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.memory_store import CHUNK_TOKENS, LAYOUT, Rig, refuse

from lmcache_core import BackendError, LoadResult
from lmcache_core.access.chunk_access import Reservation
from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.contracts.cache import PendingLookup
from lmcache_core.tokens.hashing import token_array

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
    """Random {store, lookup, prefetch, retrieve, skip, cancel, abandon, error, evict, clear} against a small arena and one store."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.faulty = False
        self.pending: list[PendingLookup] = []
        self.reservations: list[tuple[Reservation, list[int]]] = []
        self.filling: set[bytes] = set()
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
        nothing_else_leased = self.rig.storage.promises == 0 and not self.reservations
        promised = self.rig.engine.lookup(ids)
        delivered = self._retrieve(ids)
        if nothing_else_leased and not self.faulty:
            assert delivered == promised

    @rule(number=PROMPTS, tokens=LENGTHS)
    def prefetch(self, number: int, tokens: int) -> None:
        pending = self.rig.engine.lookup_async(prompt(number, tokens))
        assert pending.result() <= tokens
        self.pending.append(pending)

    @rule(number=PROMPTS, tokens=LENGTHS)
    def prefetch_then_retrieve(self, number: int, tokens: int) -> None:
        ids = prompt(number, tokens)
        request_id = f"{number} {tokens} {len(self.pending)}"
        promised = self.rig.engine.lookup_async(ids, request_id=request_id).result()
        assert self._retrieve(ids, request_id=request_id) >= promised

    @rule(number=PROMPTS, tokens=LENGTHS)
    def prefetch_and_think_better_of_it(self, number: int, tokens: int) -> None:
        self.rig.engine.lookup_async(prompt(number, tokens)).cancel()

    @precondition(lambda self: self.pending)
    @rule()
    def cancel_a_prefetch(self) -> None:
        self.pending.pop(0).cancel()

    @rule(number=PROMPTS, tokens=LENGTHS, skip_tokens=LENGTHS, request_id=st.sampled_from(["", "same"]))
    def retrieve_the_rest(self, number: int, tokens: int, skip_tokens: int, request_id: str) -> None:
        self._retrieve(prompt(number, tokens), skip_tokens=skip_tokens, request_id=request_id)

    @rule(number=PROMPTS, tokens=LENGTHS)
    def lookup_under_a_name_used_for_all(self, number: int, tokens: int) -> None:
        self.rig.engine.lookup(prompt(number, tokens), request_id="same")

    @rule(number=PROMPTS, tokens=LENGTHS)
    def begin_to_fill(self, number: int, tokens: int) -> None:
        run = self.rig.format.run(token_array(prompt(number, tokens)), "", "")
        reservation = self.rig.access.reserve(run, "", deadline=time.monotonic() + 5.0)
        assert not self.filling & {run.digests[place] for place in reservation.places}
        self.filling |= {run.digests[place] for place in reservation.places}
        self.reservations.append((reservation, prompt(number, tokens)))

    @precondition(lambda self: self.reservations)
    @rule(fill=st.booleans())
    def end_to_fill(self, fill: bool) -> None:
        reservation, ids = self.reservations.pop(0)
        self.filling -= {reservation.run.digests[place] for place in reservation.places}
        if not fill:
            self.rig.access.abandon(reservation)
            return
        starts = [place * CHUNK_TOKENS for place in reservation.places]
        TensorAdapter(LAYOUT, CHUNK_TOKENS).gather(kv_of(ids), starts, reservation.payloads)
        self.rig.access.commit(reservation, "", deadline=time.monotonic() + 5.0)

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
        self.rig.local.arena.release(self.rig.local.reserve(6, self.rig.codec.frame_bytes))

    def _retrieve(self, ids: list[int], *, skip_tokens: int = 0, request_id: str = "") -> int:
        out = torch.full(LAYOUT.kv_shape(len(ids)), -1.0)
        mask = self.rig.engine.retrieve(ids, out, skip_tokens=skip_tokens, request_id=request_id)
        delivered, skipped = int(mask.sum()), min(skip_tokens, len(ids))
        assert mask[:delivered].all()
        assert torch.equal(out[:, :, skipped:delivered], kv_of(ids)[:, :, skipped:delivered])
        assert (out[:, :, :skipped] == -1.0).all()
        assert (out[:, :, delivered:] == -1.0).all()
        return delivered

    @invariant()
    def memory_is_exact(self) -> None:
        arena = self.rig.arena
        assert arena.used_bytes + arena.free_bytes == arena.capacity_bytes

    @invariant()
    def claims_are_exact(self) -> None:
        assert self.rig.storage.claims == len(self.filling)

    def teardown(self) -> None:
        self.mend()
        while self.reservations:
            self.end_to_fill(False)
        self.rig.close()
        assert self.rig.storage.claims == 0
        assert self.rig.storage.promises == 0
        assert self.rig.arena.blocks == self.rig.local.chunks
        self.rig.local.clear()
        assert self.rig.arena.used_bytes == 0
        assert self.rig.arena.free_bytes == self.rig.arena.capacity_bytes


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
