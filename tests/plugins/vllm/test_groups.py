"""Chunks of hybrid models: several groups of layers in one memory, a request's blocks in each."""

from __future__ import annotations

import pytest
import torch
from tests.plugins.vllm.test_staged import LateQueue

from lmcache_core import KVGroup, LayoutError
from lmcache_plugins.vllm.paged import PagedAdapter, PagedKV
from lmcache_plugins.vllm.staged import CopyQueue

BLOCKS, BLOCK_TOKENS, CHUNK_BLOCKS = 20, 4, 4
NEAR = KVGroup(name="near", kind="sliding_window", num_layers=2, window_tokens=6)
FAR = KVGroup(name="far", kind="full", num_layers=2)


def memory(seed: int) -> list[torch.Tensor]:
    """Tensors of four layers; those of the second group lie where those of the first do, as in vLLM."""
    shared = torch.randn(2, BLOCKS, 2, BLOCK_TOKENS, 8, generator=torch.Generator().manual_seed(seed))
    return [*shared.unbind(0), *shared.unbind(0)]


def adapter_of(caches: list[torch.Tensor], copies: CopyQueue | None = None) -> PagedAdapter:
    return PagedAdapter(
        caches,
        num_blocks=BLOCKS,
        block_tokens=BLOCK_TOKENS,
        chunk_tokens=BLOCK_TOKENS * CHUNK_BLOCKS,
        groups=(NEAR, FAR),
        copies=copies,
    )


def payload_of(adapter: PagedAdapter) -> memoryview:
    return memoryview(bytearray(adapter.block_bytes * CHUNK_BLOCKS))


@pytest.fixture(params=["at once", "late"])
def copies(request: pytest.FixtureRequest) -> CopyQueue | None:
    return LateQueue() if request.param == "late" else None


def test_each_group_goes_by_its_own_blocks(copies: CopyQueue | None) -> None:
    caches, others = memory(1), memory(2)
    reading, writing = adapter_of(caches, copies), adapter_of(others, copies)
    payload = payload_of(reading)
    reading.gather(PagedKV([[1, 2, 3, 4], [11, 12, 13, 14]]), [0], [payload])
    writing.scatter(payload, PagedKV([[5, 6, 7, 8], [19, 18, 17, 16]]), 0)
    writing.finish(PagedKV([[], []]))
    for cache, other in zip(caches[:2], others[:2], strict=True):
        assert torch.equal(other[[5, 6, 7, 8]], cache[[1, 2, 3, 4]])
        assert torch.equal(other[[19, 18, 17, 16]], cache[[11, 12, 13, 14]])


def test_what_a_group_has_let_go_of_is_not_written(copies: CopyQueue | None) -> None:
    caches, others, before = memory(1), memory(2), memory(2)
    reading, writing = adapter_of(caches, copies), adapter_of(others, copies)
    payload = payload_of(reading)
    reading.gather(PagedKV([[1, 2, 3, 4], [11, 12, 13, 14]]), [0], [payload])
    writing.scatter(payload, PagedKV([[0, 0, 0, 8], [19, 18, 17, 16]]), 0)
    writing.finish(PagedKV([[], []]))
    for cache, other, old in zip(caches[:2], others[:2], before[:2], strict=True):
        assert torch.equal(other[[8, 19, 18, 17, 16]], cache[[4, 11, 12, 13, 14]])
        untouched = [block for block in range(BLOCKS) if block not in (8, 19, 18, 17, 16)]
        assert torch.equal(other[untouched], old[untouched])


def test_a_chunk_that_one_group_has_let_go_of_is_written_to_the_other(copies: CopyQueue | None) -> None:
    caches, others = memory(1), memory(2)
    reading, writing = adapter_of(caches, copies), adapter_of(others, copies)
    payload = payload_of(reading)
    reading.gather(PagedKV([[1, 2, 3, 4], [11, 12, 13, 14]]), [0], [payload])
    writing.scatter(payload, PagedKV([[0, 0, 0, 0], [19, 18, 17, 16]]), 0)
    writing.finish(PagedKV([[], []]))
    assert torch.equal(others[2][[19, 18, 17, 16]], caches[2][[11, 12, 13, 14]])


def test_a_chunk_with_a_block_that_is_gone_cannot_be_read() -> None:
    adapter = adapter_of(memory(1))
    with pytest.raises(LayoutError) as caught:
        adapter.gather(PagedKV([[0, 2, 3, 4], [11, 12, 13, 14]]), [0], [payload_of(adapter)])
    assert str(caught.value) == "the chunk from token 0 on has a block that group 0 has let go of"


def test_a_gap_in_what_a_group_has_is_refused() -> None:
    adapter = adapter_of(memory(1))
    with pytest.raises(LayoutError) as caught:
        adapter.scatter(payload_of(adapter), PagedKV([[1, 0, 3, 4], [11, 12, 13, 14]]), 0)
    assert str(caught.value) == "the chunk from token 0 on goes to a block that group 0 has let go of"


def test_block_0_of_full_attention_is_a_block() -> None:
    adapter = adapter_of(memory(1))
    adapter.gather(PagedKV([[1, 2, 3, 4], [0, 12, 13, 14]]), [0], [payload_of(adapter)])


def test_blocks_of_too_few_groups_are_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        adapter_of(memory(1)).check(PagedKV([[1, 2, 3, 4]]), 16)
    assert str(caught.value) == "kv must have blocks of 2 groups, got 1"
