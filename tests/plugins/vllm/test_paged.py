from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core import LayoutError
from lmcache_plugins.vllm.paged import PagedAdapter, PagedKV, runs_of

LAYERS, BLOCKS, BLOCK_TOKENS, CHUNK_TOKENS = 3, 20, 32, 128
CHUNK_BLOCKS = CHUNK_TOKENS // BLOCK_TOKENS


def random_caches(seed: int = 0) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return list(torch.randn(LAYERS, BLOCKS, 2, BLOCK_TOKENS, 16, generator=source).unbind(0))


def adapter_of(caches: list[torch.Tensor]) -> PagedAdapter:
    return PagedAdapter(caches, num_blocks=BLOCKS, block_tokens=BLOCK_TOKENS, chunk_tokens=CHUNK_TOKENS)


def payload_of(adapter: PagedAdapter) -> memoryview:
    return memoryview(bytearray(adapter.block_bytes * CHUNK_BLOCKS))


def test_block_bytes_are_those_of_all_layers() -> None:
    assert adapter_of(random_caches()).block_bytes == LAYERS * 2 * BLOCK_TOKENS * 16 * 4


@given(
    st.lists(st.integers(0, BLOCKS - 1), min_size=8, max_size=8, unique=True),
    st.lists(st.integers(0, BLOCKS - 1), min_size=8, max_size=8, unique=True),
)
def test_what_is_gathered_from_some_blocks_is_scattered_to_others(source: list[int], target: list[int]) -> None:
    caches, others = random_caches(1), random_caches(2)
    reading, writing = adapter_of(caches), adapter_of(others)
    payloads = [payload_of(reading), payload_of(reading)]
    reading.gather(PagedKV([source]), [0, CHUNK_TOKENS], payloads)
    for place, payload in enumerate(payloads):
        writing.scatter(payload, PagedKV([target]), place * CHUNK_TOKENS)
    for cache, other in zip(caches, others, strict=True):
        assert torch.equal(cache[source], other[target])


def test_a_payload_is_layers_of_blocks() -> None:
    caches = random_caches()
    adapter = adapter_of(caches)
    payload = payload_of(adapter)
    adapter.gather(PagedKV([[4, 9, 2, 3]]), [0], [payload])
    found = torch.frombuffer(payload, dtype=torch.float32).view(LAYERS, 4, 2, BLOCK_TOKENS, 16)
    assert torch.equal(found[1, 1], caches[1][9])


@pytest.fixture
def filled() -> tuple[list[torch.Tensor], PagedAdapter, memoryview]:
    caches = random_caches(5)
    adapter = adapter_of(caches)
    payload = payload_of(adapter)
    payload[:] = bytes([7]) * len(payload)
    return caches, adapter, payload


def untouched(caches: list[torch.Tensor], block: int) -> bool:
    return all(torch.equal(cache[block], fresh[block]) for cache, fresh in zip(caches, random_caches(5), strict=True))


def test_blocks_before_the_first_are_not_written(filled: Any) -> None:
    caches, adapter, payload = filled
    adapter.scatter(payload, PagedKV([[3, 4, 5, 6]], first_block=2), 0)
    assert [untouched(caches, block) for block in (3, 4, 5, 6)] == [True, True, False, False]


def test_a_chunk_is_written_as_far_as_the_blocks_reach(filled: Any) -> None:
    caches, adapter, payload = filled
    adapter.scatter(payload, PagedKV([[3, 4, 5]]), 0)
    assert [untouched(caches, block) for block in (3, 4, 5, 6)] == [False, False, False, True]


def test_a_chunk_that_is_all_computed_is_not_written(filled: Any) -> None:
    caches, adapter, payload = filled
    adapter.scatter(payload, PagedKV([[3, 4, 5, 6, 7]], first_block=4), 0)
    assert all(untouched(caches, block) for block in range(BLOCKS))


def test_a_chunk_without_all_its_blocks_is_not_gathered() -> None:
    adapter = adapter_of(random_caches())
    with pytest.raises(LayoutError) as caught:
        adapter.gather(PagedKV([[1, 2, 3, 4, 5]]), [CHUNK_TOKENS], [payload_of(adapter)])
    assert str(caught.value) == "the chunk from token 128 on takes 4 blocks, the request has 1 there"


@pytest.mark.parametrize("ids", [[-1, 3], [3, BLOCKS]])
def test_blocks_that_do_not_exist_are_refused(ids: list[int]) -> None:
    with pytest.raises(LayoutError) as caught:
        adapter_of(random_caches()).check(PagedKV([ids]), 64)
    assert str(caught.value) == f"block ids must be of 0 to 19, got {min(ids)} to {max(ids)}"


def test_a_tensor_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        adapter_of(random_caches()).check(torch.zeros(1), 1)
    assert str(caught.value) == "kv must be the blocks of a request, got Tensor"


def test_a_chunk_of_part_of_a_block_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        PagedAdapter(random_caches(), num_blocks=BLOCKS, block_tokens=BLOCK_TOKENS, chunk_tokens=48)
    assert str(caught.value) == "a chunk of 48 tokens is no whole number of vllm's 32"


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_runs_cover_the_ids_and_each_is_consecutive(ids: list[int]) -> None:
    parts = [ids[begin:end] for begin, end in runs_of(ids)]
    assert [one for part in parts for one in part] == ids
    assert all(part == list(range(part[0], part[0] + len(part))) for part in parts)


def test_a_chunk_that_is_not_full_needs_no_more_blocks_than_its_tokens() -> None:
    caches = random_caches(7)
    adapter = adapter_of(caches)
    payload = payload_of(adapter)

    adapter.gather(PagedKV([[4, 9]], tokens=BLOCK_TOKENS + 1), [0], [payload])

    found = torch.frombuffer(payload, dtype=torch.float32).view(LAYERS, CHUNK_BLOCKS, 2, BLOCK_TOKENS, 16)
    assert torch.equal(found[2], caches[2][[4, 9, 9, 9]])


def test_a_chunk_that_is_not_full_needs_every_block_of_its_tokens() -> None:
    with pytest.raises(LayoutError) as caught:
        adapter_of(random_caches()).gather(PagedKV([[4]], tokens=BLOCK_TOKENS + 1), [0], [memoryview(b"")])

    assert str(caught.value) == "the chunk from token 0 on takes 2 blocks, the request has 1 there"


def test_a_full_chunk_needs_all_its_blocks_whatever_follows() -> None:
    with pytest.raises(LayoutError) as caught:
        adapter_of(random_caches()).gather(PagedKV([[4, 5, 6]], tokens=CHUNK_TOKENS + 1), [0], [memoryview(b"")])

    assert str(caught.value) == "the chunk from token 0 on takes 4 blocks, the request has 3 there"
