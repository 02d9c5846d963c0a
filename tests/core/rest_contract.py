"""What every cache does with the rest of a sequence that fills no chunk."""

from __future__ import annotations

import pytest
import torch
from tests.cache_stage import MakeStage, Stage
from tests.core.cache_contract import fresh, kv_of, mask, read


class RestContract:
    """Tests of `save_unfull_chunk`, for a class with the fixtures of `test_cache_contract`."""

    def test_a_rest_is_left_out(self, stage: Stage) -> None:
        assert not stage.cache.save_unfull_chunk

    @pytest.mark.parametrize("count", [1, 4, 10])
    def test_a_rest_that_is_kept_comes_back(self, make_stage: MakeStage, count: int) -> None:
        stage = make_stage(save_unfull_chunk=True)
        tokens = fresh(count)
        kv = kv_of(tokens)

        assert stage.cache.store(tokens, kv) == count
        assert stage.cache.store(tokens, kv) == 0
        assert stage.cache.lookup(tokens, request_id="r") == count
        found, out = read(stage, tokens, request_id="r")
        assert found == mask(count, count)
        assert torch.equal(out, kv)

    def test_a_rest_is_found_by_its_own_tokens_alone(self, make_stage: MakeStage) -> None:
        stage = make_stage(save_unfull_chunk=True)
        tokens = fresh(10)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv)
        longer, shorter, other = [*tokens, 99], tokens[:9], [*tokens[:9], 99]

        for asked in (longer, shorter, other):
            assert stage.cache.lookup_async(asked, request_id="r").result() == 8
            found, out = read(stage, asked, request_id="r")
            assert found == mask(8, len(asked))
            assert torch.equal(out[:, :, :8], kv[:, :, :8])

    def test_a_sequence_that_grows_over_a_rest_is_kept_whole(self, make_stage: MakeStage) -> None:
        stage = make_stage(save_unfull_chunk=True)
        tokens = fresh(11)
        kv = kv_of(tokens)

        assert [stage.cache.store(tokens[:n], kv[:, :, :n]) for n in (6, 11, 6)] == [6, 7, 0]
        assert torch.equal(read(stage, tokens)[1], kv)

    def test_a_promised_rest_can_be_given_up(self, make_stage: MakeStage) -> None:
        stage = make_stage(save_unfull_chunk=True)
        tokens = fresh(10)
        stage.cache.store(tokens, kv_of(tokens))
        stage.cache.lookup(tokens)

        assert stage.cache.release(tokens)
        assert stage.held() == (0, 0)
