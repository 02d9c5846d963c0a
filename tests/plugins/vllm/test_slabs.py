import pytest
import torch

from lmcache_core import LayoutError
from lmcache_plugins.vllm.slabs import slabs_of

BLOCKS = 7


def one_storage(layers: int) -> list[torch.Tensor]:
    whole = torch.arange(layers * BLOCKS * 3 * 16 * 8, dtype=torch.float32)
    return list(whole.view(layers, BLOCKS, 3, 16, 8).unbind(0))


def test_layers_of_one_storage_are_one_slab() -> None:
    (slab,) = slabs_of(one_storage(5), BLOCKS)
    assert slab.blocks.shape == (5, BLOCKS, 3 * 16 * 8 * 4 // 8)


def test_a_slab_shares_the_tensors_memory() -> None:
    caches = one_storage(2)
    (slab,) = slabs_of(caches, BLOCKS)
    slab.blocks[1, 3].zero_()
    assert caches[1][3].eq(0).all()
    assert not caches[1][2].eq(0).all()


def test_layers_of_their_own_storages_are_slabs_of_their_own() -> None:
    caches = [torch.zeros(BLOCKS, 3, 16, 8) for _ in range(3)]
    assert [slab.planes for slab in slabs_of(caches, BLOCKS)] == [1, 1, 1]


def test_layers_woven_block_by_block_are_one_slab() -> None:
    whole = torch.arange(BLOCKS * 4 * 48, dtype=torch.float32).view(BLOCKS, 4, 48)
    caches = [whole[:, layer] for layer in range(4)]
    (slab,) = slabs_of(caches, BLOCKS)
    assert torch.equal(slab.blocks[2, 5].view(torch.float32), whole[5, 2])


def test_heads_and_tokens_may_be_swapped_inside_a_block() -> None:
    cache = torch.arange(BLOCKS * 3 * 16 * 8, dtype=torch.float32).view(BLOCKS, 16, 3, 8).transpose(1, 2)
    (slab,) = slabs_of([cache], BLOCKS)
    assert torch.equal(slab.blocks[0, 4].view(torch.float32), cache[4].transpose(0, 1).reshape(-1))


def test_keys_and_values_apart_are_two_planes() -> None:
    cache = torch.arange(2 * BLOCKS * 48, dtype=torch.float32).view(2, BLOCKS, 48)
    (slab,) = slabs_of([cache], BLOCKS)
    assert slab.planes == 2
    assert torch.equal(slab.blocks[1, 6].view(torch.float32), cache[1, 6])


def test_kernel_blocks_are_put_together_to_vllms() -> None:
    cache = torch.arange(BLOCKS * 4 * 48, dtype=torch.float32).view(BLOCKS * 4, 48)
    (slab,) = slabs_of([cache], BLOCKS)
    assert torch.equal(slab.blocks[0, 2].view(torch.float32), cache[8:12].reshape(-1))


def test_odd_sizes_are_copied_byte_by_byte() -> None:
    cache = torch.zeros(BLOCKS, 3, dtype=torch.uint8)
    (slab,) = slabs_of([cache], BLOCKS)
    assert (slab.blocks.dtype, slab.block_bytes) == (torch.uint8, 3)


def test_a_block_in_pieces_is_refused() -> None:
    cache = torch.zeros(BLOCKS, 3, 16)[:, :, :8]
    with pytest.raises(LayoutError) as caught:
        slabs_of([cache], BLOCKS)
    assert str(caught.value) == (
        "the blocks of the kv cache tensor [7, 3, 8] with strides [48, 16, 1] are not in one piece"
    )


def test_a_tensor_without_blocks_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        slabs_of([torch.zeros(5, 3)], BLOCKS)
    assert str(caught.value) == "no dimension of the kv cache tensor [5, 3] has 7 blocks"


def test_no_tensor_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        slabs_of([], BLOCKS)
    assert str(caught.value) == "vllm registered no kv cache tensor"
