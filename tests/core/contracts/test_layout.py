import pytest

from lmcache_core.contracts.layout import DTYPE_BYTES, KVGroup, KVLayout
from lmcache_core.errors import LayoutError


def layout(**changes: object) -> KVLayout:
    plain: dict[str, object] = {"num_layers": 2, "num_kv_heads": 3, "head_size": 4, "dtype": "float16"}
    return KVLayout(**{**plain, **changes})  # type: ignore[arg-type]


def test_shape_of_grouped_query_attention() -> None:
    assert layout().kv_shape(5) == (2, 2, 5, 12)


def test_shape_of_mla() -> None:
    assert layout(num_kv_heads=1, use_mla=True).kv_shape(5) == (1, 2, 5, 4)


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_bytes_of_a_token(dtype: str) -> None:
    assert layout(dtype=dtype).bytes_per_token == 2 * 2 * 12 * DTYPE_BYTES[dtype]


def test_llama_3_8b_takes_128_kib_a_token() -> None:
    llama = KVLayout(num_layers=32, num_kv_heads=8, head_size=128, dtype="bfloat16")

    assert llama.bytes_per_token == 128 << 10


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_layers": 0}, "kv layout: num_layers must be a whole number of at least 1, got 0"),
        ({"head_size": "64"}, "kv layout: head_size must be a whole number of at least 1, got '64'"),
        (
            {"dtype": "int8"},
            "kv layout: dtype 'int8' is not stored; use one of bfloat16, float16, float32, float8_e4m3fn, float8_e5m2",
        ),
        ({"use_mla": True}, "kv layout: mla has one latent head, got num_kv_heads=3"),
    ],
)
def test_wrong_value_is_refused_in_a_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(LayoutError) as caught:
        layout(**changes)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "kind", ["chunked_local", "mla_indexer", "mamba_align", "mamba", "cross_attention", "something new"]
)
def test_group_that_cannot_be_rebuilt_from_chunks_is_refused_by_name(kind: str) -> None:
    with pytest.raises(LayoutError) as caught:
        layout(groups=(KVGroup(name="g1", kind=kind, num_layers=2),))

    assert str(caught.value) == (
        f"kv layout: group 'g1' is of kind {kind!r}, whose state cannot be rebuilt from a prefix's chunks; "
        "only full, mla, sliding_window are cached, so run this model without lmcache-core"
    )


def hybrid(window_tokens: int = 6, layers: int = 1) -> KVLayout:
    near = KVGroup(name="near", kind="sliding_window", num_layers=layers, window_tokens=window_tokens)
    return layout(groups=(near, KVGroup(name="far", kind="full", num_layers=2 - layers)))


def test_layers_of_a_sliding_window_take_as_much_as_others() -> None:
    assert hybrid().bytes_per_token == layout().bytes_per_token


def test_models_of_different_windows_never_share_a_chunk() -> None:
    only = KVGroup(name="all", kind="sliding_window", num_layers=2, window_tokens=6)
    found = {one.fingerprint for one in (layout(), hybrid(6), hybrid(7), layout(groups=(only,)))}

    assert len(found) == 4


@pytest.mark.parametrize(("kind", "window_tokens"), [("sliding_window", 0), ("sliding_window", -1), ("full", 4)])
def test_a_window_must_agree_with_its_groups_kind(kind: str, window_tokens: int) -> None:
    with pytest.raises(LayoutError) as caught:
        layout(groups=(KVGroup(name="a", kind=kind, num_layers=2, window_tokens=window_tokens),))

    assert str(caught.value) == (
        f"kv layout: group 'a' is of kind {kind!r} with window_tokens={window_tokens}; "
        "a sliding window has at least 1, any other kind 0"
    )


def test_one_full_group_of_all_layers_is_served() -> None:
    assert layout(groups=(KVGroup(name="a", kind="full", num_layers=2),)).bytes_per_token == 96


def test_groups_of_some_layers_are_refused() -> None:
    near = KVGroup(name="near", kind="sliding_window", num_layers=2, window_tokens=6)
    with pytest.raises(LayoutError) as caught:
        layout(groups=(near, KVGroup(name="far", kind="full", num_layers=1)))

    assert str(caught.value) == ("kv layout: 3 of 2 layers are in a group ('near', 'far'); every layer must be in one")


def test_group_kind_must_agree_with_mla() -> None:
    with pytest.raises(LayoutError) as caught:
        layout(groups=(KVGroup(name="a", kind="mla", num_layers=2),))

    assert str(caught.value) == "kv layout: group 'a' is of kind 'mla' but use_mla is False"
