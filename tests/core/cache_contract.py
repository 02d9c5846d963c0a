"""What every cache must do, wherever its chunks are: run over each kind of cache with each store behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cache_calls import chunk_files, fresh, in_threads, kv_of, looked_up, mask, read
from tests.cache_stage import CHUNK_TOKENS, MakeStage, Stage, until

from lmcache_core import KVGroup, KVLayout, LayoutError


class KVCacheContract:
    """Subclasses give the fixtures `stage` and `make_stage`."""

    @pytest.fixture(autouse=True)
    def leaves_nothing_held(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """No lease and no promise is left by any test that uses the shared cache."""
        yield
        if "stage" in request.fixturenames:
            stage: Stage = request.getfixturevalue("stage")
            assert until(lambda: stage.held() == (0, 0)), stage.held()

    # -- store, retrieve ----------------------------------------------------------

    def test_stored_chunks_come_back_equal(self, stage: Stage) -> None:
        tokens = fresh(10)
        kv = kv_of(tokens)
        assert stage.cache.store(tokens, kv) == 8

        found, out = read(stage, tokens)

        assert found == mask(8, 10)
        assert torch.equal(out[:, :, :8], kv[:, :, :8])
        assert not out[:, :, 8:].any()

    def test_what_is_kept_is_not_stored_again(self, stage: Stage) -> None:
        tokens = fresh(8)

        assert stage.cache.store(tokens, kv_of(tokens)) == 8
        assert stage.cache.store(tokens, kv_of(tokens)) == 0

    def test_only_what_is_missing_is_stored(self, stage: Stage) -> None:
        tokens = fresh(12)
        stage.cache.store(tokens[:4], kv_of(tokens[:4]))

        assert stage.cache.store(tokens, kv_of(tokens)) == 8
        assert read(stage, tokens)[0] == mask(12, 12)

    def test_a_read_stops_at_the_first_missing_chunk(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens))
        longer = [*tokens[:4], 1, 2, 3, 4, *tokens[8:]]

        found, out = read(stage, longer)

        assert found == mask(4, 8)
        assert not out[:, :, 4:].any()

    def test_less_than_a_chunk_is_nothing(self, stage: Stage) -> None:
        tokens = fresh(3)

        assert stage.cache.store(tokens, kv_of(tokens)) == 0
        assert stage.cache.lookup(tokens) == 0
        assert read(stage, tokens)[0] == mask(0, 3)

    def test_no_tokens_are_nothing(self, stage: Stage) -> None:
        assert stage.cache.store([], kv_of([])) == 0
        assert stage.cache.lookup([]) == 0
        assert read(stage, [])[0] == []

    def test_tokens_may_be_an_array_or_a_tensor(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(np.array(tokens), kv_of(tokens))

        assert stage.cache.lookup(torch.tensor(tokens)) == 8
        assert stage.cache.release(tokens)

    def test_other_layouts_come_back_equal(self, make_stage: MakeStage) -> None:
        layout = KVLayout(num_layers=3, num_kv_heads=1, head_size=9, dtype="bfloat16", use_mla=True)
        stage = make_stage(layout=layout)
        tokens = fresh(8)
        kv = kv_of(tokens, layout)
        stage.cache.store(tokens, kv)
        out = torch.zeros_like(kv)

        assert stage.cache.retrieve(tokens, out).all()
        assert torch.equal(out, kv)

    # -- lookup ---------------------------------------------------------------------

    def test_a_lookup_counts_full_leading_chunks(self, stage: Stage) -> None:
        tokens = fresh(10)
        stage.cache.store(tokens, kv_of(tokens))
        other = [*tokens[:4], 99, 99, 99, 99]

        assert (stage.cache.lookup(tokens), stage.cache.lookup(other)) == (8, 4)
        assert stage.cache.release(tokens)
        assert stage.cache.release(other)

    def test_an_async_lookup_finds_the_same(self, stage: Stage) -> None:
        tokens = fresh(10)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv)

        pending = stage.cache.lookup_async(tokens, request_id="r")

        assert pending.result() == 8
        assert pending.done()
        assert pending.result(0.0) == 8
        assert torch.equal(read(stage, tokens, request_id="r")[1][:, :, :8], kv[:, :, :8])

    def test_a_cancelled_lookup_holds_nothing(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens))
        pending = stage.cache.lookup_async(tokens)

        pending.cancel()
        pending.cancel()

        assert pending.done()

    def test_an_answered_lookup_that_is_cancelled_holds_nothing(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens))
        pending = stage.cache.lookup_async(tokens)
        assert pending.result() == 8

        pending.cancel()

        assert until(lambda: stage.held() == (0, 0))
        assert not stage.cache.release(tokens)

    def test_a_promise_can_be_given_up_once(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens))
        stage.cache.lookup(tokens, request_id="r")

        assert stage.cache.release(tokens, request_id="r")
        assert not stage.cache.release(tokens, request_id="r")

    def test_a_promise_outlives_a_clear(self, stage: Stage) -> None:
        tokens = fresh(8)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv)
        stage.cache.lookup(tokens)
        stage.cache.clear()

        found, out = read(stage, tokens)

        assert found == mask(8, 8)
        assert torch.equal(out, kv)

    # -- identity ---------------------------------------------------------------------

    @pytest.mark.parametrize("identity", ["salt", "variant"])
    def test_two_identities_never_meet(self, stage: Stage, identity: str) -> None:
        tokens = fresh(8)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv, **{identity: "a"})

        assert stage.cache.lookup(tokens) == 0
        assert stage.cache.lookup(tokens, **{identity: "b"}) == 0
        assert read(stage, tokens, **{identity: "b"})[0] == mask(0, 8)
        found, out = read(stage, tokens, **{identity: "a"})
        assert found == mask(8, 8)
        assert torch.equal(out, kv)

    def test_a_salt_is_no_variant(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens), salt="a")

        assert stage.cache.lookup(tokens, variant="a") == 0

    def test_release_takes_the_identity_too(self, stage: Stage) -> None:
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens), salt="a", variant="v")
        stage.cache.lookup(tokens, salt="a", variant="v", request_id="r")

        assert not stage.cache.release(tokens, salt="b", variant="v", request_id="r")
        assert stage.cache.release(tokens, salt="a", variant="v", request_id="r")

    # -- refusals -----------------------------------------------------------------------

    @pytest.mark.parametrize(
        "kv",
        [
            kv_of(list(range(9))),
            kv_of(list(range(8)))[:1],
            kv_of(list(range(8))).to(torch.float16),
            kv_of(list(range(8))).numpy(),
            None,
        ],
    )
    def test_kv_of_another_shape_is_refused(self, stage: Stage, kv: object) -> None:
        tokens = fresh(8)

        assert stage.cache.store(tokens, kv) == 0
        assert stage.cache.lookup(tokens) == 0
        assert stage.cache.retrieve(tokens, kv).tolist() == mask(0, 8)

    @pytest.mark.parametrize("tokens", [[-1] * 8, [1 << 32] * 8, [0.5] * 8, [[1] * 8], "12345678", 8, None])
    def test_tokens_that_are_none_are_refused(self, stage: Stage, tokens: Any) -> None:
        kv = kv_of(list(range(8)))

        assert stage.cache.store(tokens, kv) == 0
        assert stage.cache.lookup(tokens) == 0
        assert stage.cache.lookup_async(tokens).result() == 0
        assert not any(stage.cache.retrieve(tokens, kv))
        assert not stage.cache.release(tokens)

    def test_a_copy_that_fails_stores_nothing(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        tokens = fresh(8)
        monkeypatch.setattr(stage.cache._adapter(CHUNK_TOKENS), "gather", lambda *_: 1 / 0)

        assert stage.cache.store(tokens, kv_of(tokens)) == 0
        assert stage.cache.lookup(tokens) == 0
        monkeypatch.undo()
        assert stage.cache.store(tokens, kv_of(tokens)) == 8

    def test_a_copy_that_fails_later_gives_the_head(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        tokens = fresh(12)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv)
        adapter = stage.cache._adapter(CHUNK_TOKENS)
        scatter = adapter.scatter

        def fail_behind(payload: memoryview, out: torch.Tensor, start: int) -> None:
            if start >= 8:
                raise RuntimeError("the copy failed")
            scatter(payload, out, start)

        monkeypatch.setattr(adapter, "scatter", fail_behind)

        found, out = read(stage, tokens)

        assert found == mask(8, 12)
        assert torch.equal(out[:, :, :8], kv[:, :, :8])

    @pytest.mark.parametrize("kind", ["mamba", "sliding_window", "cross", "chunked_local", "?"])
    def test_a_layout_that_cannot_be_cached_is_refused(self, kind: str) -> None:
        with pytest.raises(LayoutError, match="group 'g'"):
            KVLayout(
                num_layers=2,
                num_kv_heads=2,
                head_size=4,
                dtype="float32",
                groups=(KVGroup(name="g", kind=kind, num_layers=2),),
            )

    # -- clear, expiry, eviction ----------------------------------------------------------

    def test_a_clear_tells_what_it_did(self, stage: Stage) -> None:
        stage.cache.clear()
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens))

        first, again = stage.cache.clear(), stage.cache.clear()

        assert (first[0].backend, first[0].chunks) == ("LocalCPUBackend", 2)
        assert again[0].chunks == 0

    def test_an_expired_promise_is_given_up(self, make_stage: MakeStage) -> None:
        stage = make_stage(pin_timeout_sec=0.05)
        tokens = fresh(8)
        stage.cache.store(tokens, kv_of(tokens))
        stage.cache.lookup(tokens, request_id="r")

        assert until(lambda: stage.held() == (0, 0))
        assert not stage.cache.release(tokens, request_id="r")
        assert read(stage, tokens, request_id="r")[0] == mask(8, 8)

    def test_nothing_is_ever_wrong_in_too_small_a_memory(self, make_stage: MakeStage) -> None:
        stage = make_stage(max_local_cpu_size=6 * 4096 / (1 << 30))
        prompts = [fresh(8) for _ in range(12)]
        for tokens in prompts:  # blocks that wait to be written to a store are not free
            assert until(
                lambda tokens=tokens: looked_up(stage, tokens) or stage.cache.store(tokens, kv_of(tokens)) == 8
            )

        delivered = 0
        for tokens in prompts:
            found, out = read(stage, tokens)
            assert torch.equal(out[:, :, : sum(found)], kv_of(tokens)[:, :, : sum(found)])
            delivered += sum(found)
        assert delivered >= 3 * CHUNK_TOKENS

    def test_a_promise_is_not_evicted(self, make_stage: MakeStage) -> None:
        stage = make_stage(max_local_cpu_size=6 * 4096 / (1 << 30))
        tokens = fresh(16)
        stage.cache.store(tokens, kv_of(tokens))
        assert stage.cache.lookup(tokens) == 16
        for _ in range(6):
            other = fresh(8)
            stage.cache.store(other, kv_of(other))

        found, out = read(stage, tokens)

        assert found == mask(16, 16)
        assert torch.equal(out, kv_of(tokens))

    # -- the stores behind ------------------------------------------------------------------

    def test_chunks_come_back_from_the_store_behind(self, make_stage: MakeStage, has_store: bool) -> None:
        if not has_store:
            return
        stage = make_stage(local_cpu=False)
        tokens = fresh(10)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv)
        assert until(lambda: looked_up(stage, tokens) == 8)

        for request_id in ("", "sync", "async"):
            if request_id == "sync":
                assert stage.cache.lookup(tokens, request_id=request_id) == 8
            elif request_id == "async":
                assert stage.cache.lookup_async(tokens, request_id=request_id).result() == 8
            found, out = read(stage, tokens, request_id=request_id)
            assert found == mask(8, 10)
            assert torch.equal(out[:, :, :8], kv[:, :, :8])
        assert until(lambda: stage.held() == (0, 0))

    def test_a_chunk_lost_after_the_lookup_ends_the_read(self, make_stage: MakeStage) -> None:
        stage = make_stage(local_cpu=False)
        if stage.folder is None:
            return
        tokens = fresh(12)
        kv = kv_of(tokens)
        known: set[Path] = set()
        files: list[set[Path]] = []
        for stop in (4, 8, 12):
            stage.cache.store(tokens[:stop], kv[:, :, :stop])
            assert until(lambda stop=stop: looked_up(stage, tokens) == stop)
            files.append(chunk_files(stage.folder) - known)
            known |= files[-1]
        assert stage.cache.lookup(tokens) == 12
        for file in files[1]:
            file.unlink()

        found, out = read(stage, tokens)

        assert found == mask(4, 12)
        assert torch.equal(out[:, :, :4], kv[:, :, :4])

    # -- threads ------------------------------------------------------------------------------

    def test_one_chunk_is_written_once_by_many_threads(self, stage: Stage) -> None:
        tokens = fresh(32)
        kv = kv_of(tokens)
        kept: list[int] = []

        in_threads(8, lambda _: kept.append(stage.cache.store(tokens, kv)))

        assert sum(kept) == 32
        assert torch.equal(read(stage, tokens)[1], kv)

    def test_threads_never_see_each_others_chunks(self, stage: Stage) -> None:
        prompts = [fresh(16) for _ in range(4)]
        wrong: list[object] = []

        def work(number: int) -> None:
            for turn in range(25):
                tokens = prompts[(number + turn) % len(prompts)]
                stage.cache.store(tokens, kv_of(tokens))
                request_id = f"{number}/{turn}"
                tokens_found = stage.cache.lookup(tokens, request_id=request_id)
                found, out = read(stage, tokens, request_id=request_id)
                if sum(found) < tokens_found or not torch.equal(
                    out[:, :, : sum(found)], kv_of(tokens)[:, :, : sum(found)]
                ):
                    wrong.append((number, turn, tokens_found, found))

        in_threads(6, work)

        assert wrong == []
