import pytest
import torch

from lmcache_core import KVLayout, LayoutError
from lmcache_core.adapters.tensors import TensorAdapter

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_size=3, dtype="bfloat16")


def test_payload_is_the_contiguous_chunk() -> None:
    kv = torch.arange(2 * 2 * 4 * 3, dtype=torch.bfloat16).reshape(2, 2, 4, 3)
    out = bytearray(2 * 2 * 2 * 3 * 2)

    TensorAdapter(LAYOUT, 2).gather(kv, [2], [memoryview(out)])

    assert bytes(out) == kv[:, :, 2:4].contiguous().view(torch.uint8).numpy().tobytes()


def test_scatter_touches_its_chunk_alone() -> None:
    kv = torch.zeros(2, 2, 4, 3, dtype=torch.bfloat16)
    ones = torch.ones(2, 2, 2, 3, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()

    TensorAdapter(LAYOUT, 2).scatter(memoryview(bytearray(ones)), kv, 2)

    assert not kv[:, :, :2].any()
    assert bool((kv[:, :, 2:] == 1).all())


def test_missing_torch_gives_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)

    with pytest.raises(Exception, match=r"kv tensors need 'torch'; run: pip install 'lmcache-core\[torch\]'"):
        TensorAdapter(LAYOUT, 2)


def test_shape_is_checked_with_what_was_expected() -> None:
    with pytest.raises(LayoutError) as caught:
        TensorAdapter(LAYOUT, 2).check(torch.zeros(2, 2, 4, 3), 5)

    assert str(caught.value) == "kv must have shape [2, 2, 5, 3] for 5 tokens, got [2, 2, 4, 3]"


def test_a_rest_is_followed_by_zeros() -> None:
    kv = torch.ones(2, 2, 3, 3, dtype=torch.bfloat16)
    out = bytearray(b"\xff" * (2 * 2 * 2 * 3 * 2))

    TensorAdapter(LAYOUT, 2).gather(kv, [2], [memoryview(out)])

    chunk = torch.frombuffer(out, dtype=torch.bfloat16).view(2, 2, 2, 3)
    assert bool((chunk[:, :, 0] == 1).all())
    assert not chunk[:, :, 1].any()


def test_a_rest_is_scattered_as_far_as_the_tensor_goes() -> None:
    kv = torch.zeros(2, 2, 3, 3, dtype=torch.bfloat16)
    ones = torch.ones(2, 2, 2, 3, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()

    TensorAdapter(LAYOUT, 2).scatter(memoryview(bytearray(ones)), kv, 2)

    assert not kv[:, :, :2].any()
    assert bool((kv[:, :, 2:] == 1).all())
