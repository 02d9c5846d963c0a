"""What every cache does with leading tokens that its caller has, or has not."""

from __future__ import annotations

import pytest
import torch
from tests.cache_calls import fresh, kv_of, mask, read
from tests.cache_stage import CHUNK_TOKENS, Stage


class SkipContract:
    """Tests of ``skip_tokens``, for a class with the fixtures of `test_cache_contract`."""

    @pytest.mark.parametrize("skip_tokens", [1, 4, 5, 8, 9, 100])
    def test_skipped_chunks_are_true_and_untouched(self, stage: Stage, skip_tokens: int) -> None:
        tokens = fresh(10)
        kv = kv_of(tokens)
        stage.cache.store(tokens, kv)
        skipped = min(skip_tokens, 8) // CHUNK_TOKENS * CHUNK_TOKENS

        found, out = read(stage, tokens, skip_tokens=skip_tokens)

        assert found == mask(8, 10)
        assert not out[:, :, :skipped].any()
        assert torch.equal(out[:, :, skipped:8], kv[:, :, skipped:8])

    @pytest.mark.parametrize(("skip_tokens", "skipped"), [(-1, 0), (0, 0), (1, 4), (4, 4), (5, 8), (12, 12), (99, 12)])
    def test_no_chunk_with_a_skipped_token_is_stored(self, stage: Stage, skip_tokens: int, skipped: int) -> None:
        tokens = fresh(14)
        kv = kv_of(tokens)

        assert stage.cache.store(tokens, kv, skip_tokens=skip_tokens) == 12 - skipped
        assert stage.cache.lookup(tokens) == (0 if skipped else 12)
        stage.cache.release(tokens)
        assert stage.cache.store(tokens, kv) == skipped
        found, out = read(stage, tokens)
        assert found == mask(12, 14)
        assert torch.equal(out[:, :, :12], kv[:, :, :12])
