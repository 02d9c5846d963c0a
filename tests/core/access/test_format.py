"""How chunks are cut and named; golden values must never change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core import KVLayout
from lmcache_core.access.format import ChunkFormat
from lmcache_core.contracts.key import FRAME_HEADER_BYTES, KeyNamespace, hash_salt
from lmcache_core.tokens.hashing import nearest_chunk_tokens, token_array

LAYOUT = KVLayout(num_layers=32, num_kv_heads=8, head_size=128, dtype="bfloat16")
TOKENS = token_array(list(range(600)))


def format_of(*ranks: int, layout: KVLayout = LAYOUT, chunk_tokens: int = 256) -> ChunkFormat:
    return ChunkFormat.of(layout, model_name="org/model", world_size=4, ranks=ranks or (0,), chunk_tokens=chunk_tokens)


def test_keys_are_the_golden_ones() -> None:
    """Computed with hashlib and struct alone, outside the project: a store filled by an older version still serves."""
    run = format_of().run(TOKENS, "", "")

    assert run.namespace.seed.hex() == "703be433fb6cd4248c37ad11bdc3bfd39b7f1678d86f9c8938f775ef846c1fbf"
    assert [digest.hex() for digest in run.digests] == [
        "1eb7fceeec280ea558b49656d235b094fbd448eafde4462bea09346cf6022eb6",
        "3a14216eb2e731a0612589f7c8d9ddb6de293e1d72d617b7275a81d39c3d2f98",
    ]


def test_golden_names_of_a_tenant_and_a_variant() -> None:
    assert (
        format_of().run(TOKENS, "tenant", "").namespace.seed.hex()
        == "bfe44061b4880b9cfe31a1ef70854311d2152c097c255bd1596e0eb321de79d7"
    )
    assert (
        format_of().run(TOKENS, "tenant", "lora").namespace.seed.hex()
        == "b025ff09755311a6465c6d18de2ba6f1ba9637caed56ada65b94c31f578b1975"
    )


@pytest.mark.parametrize(("salt", "kind"), [(0, "int"), (None, "NoneType"), (b"", "bytes"), (7, "int"), ((), "tuple")])
def test_a_salt_that_is_no_text_is_refused_and_never_taken_for_none(salt: object, kind: str) -> None:
    with pytest.raises(ValueError, match="salt") as caught:
        format_of().run(TOKENS, salt, "")  # type: ignore[arg-type] # what callers do all the same

    assert str(caught.value) == f"salt must be text, got {kind}; give '' for none"


def test_a_variant_that_utf_8_cannot_write_is_refused_without_its_value() -> None:
    with pytest.raises(ValueError, match="variant") as caught:
        format_of().runs(TOKENS, "", "secret \ud800")

    assert str(caught.value) == "variant must be text that utf-8 can write, got half a surrogate pair"
    assert caught.value.__suppress_context__


def test_a_run_has_the_full_chunks_of_the_tokens() -> None:
    assert len(format_of().run(TOKENS, "", "").digests) == 2


def test_each_rank_has_keys_of_its_own() -> None:
    runs = format_of(0, 1, 2).runs(TOKENS, "", "")

    assert [run.namespace.rank for run in runs] == [0, 1, 2]
    assert len({run.digests[0] for run in runs}) == 3


def test_the_engines_own_run_is_that_of_its_first_rank() -> None:
    made = format_of(3, 4)

    assert made.run(TOKENS, "s", "v") == made.runs(TOKENS, "s", "v")[0]


def test_an_engine_and_a_scheduler_name_chunks_alike() -> None:
    assert format_of(1).run(TOKENS, "", "").digests == format_of(0, 1).runs(TOKENS, "", "")[1].digests


def test_a_namespace_tells_how_long_its_frames_are() -> None:
    namespace = format_of().run(TOKENS, "", "").namespace

    assert namespace.frame_bytes == FRAME_HEADER_BYTES + LAYOUT.bytes_per_token * 256 == format_of().codec.frame_bytes


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=2, max_size=6, unique=True))
def test_no_two_tenants_or_variants_meet(who: list[tuple[str, str]]) -> None:
    made = format_of()

    assert len({made.run(TOKENS, salt, variant).digests[0] for salt, variant in who}) == len(who)


def test_a_salt_is_no_variant() -> None:
    assert format_of().run(TOKENS, "x", "").digests != format_of().run(TOKENS, "", "x").digests


def test_raw_salts_are_in_no_namespace() -> None:
    namespace = format_of().run(TOKENS, "geheim", "").namespace

    assert "geheim" not in repr(namespace)
    assert namespace.salt_hash == hash_salt("geheim")


def test_ten_thousand_namespaces_are_remembered_and_no_more() -> None:
    made = format_of()
    first = made.namespaces(hash_salt("0"), "")
    for number in range(10_010):
        made.namespaces(f"{number:032x}", "")

    assert made.namespaces(hash_salt("0"), "") is first
    assert made.namespaces(f"{10_009:032x}", "") is not made.namespaces(f"{10_009:032x}", "")
    assert made.namespaces(f"{10_009:032x}", "") == made.namespaces(f"{10_009:032x}", "")


def test_layouts_of_two_formats_never_share_a_chunk() -> None:
    arranged = KVLayout(num_layers=32, num_kv_heads=8, head_size=128, dtype="bfloat16", format="engine/block32")

    assert arranged.fingerprint != LAYOUT.fingerprint
    assert format_of(layout=arranged).run(TOKENS, "", "").digests != format_of().run(TOKENS, "", "").digests


def test_a_namespaces_bytes_are_no_part_of_its_identity() -> None:
    same = [
        KeyNamespace(
            model_name="m",
            world_size=1,
            rank=0,
            dtype="float32",
            layout="l",
            chunk_tokens=4,
            payload_bytes=length_bytes,
        )
        for length_bytes in (0, 64)
    ]

    assert (same[0], same[0].seed, hash(same[0])) == (same[1], same[1].seed, hash(same[1]))


@pytest.mark.parametrize(
    ("wanted", "block", "chunk"),
    [(256, 1, 256), (256, 16, 256), (256, 48, 240), (256, 96, 288), (256, 512, 512), (256, 600, 600), (1, 16, 16)],
)
def test_a_chunk_is_the_nearest_number_of_whole_blocks(wanted: int, block: int, chunk: int) -> None:
    assert nearest_chunk_tokens(wanted, block) == chunk


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_no_other_number_of_blocks_is_nearer(wanted: int, block: int) -> None:
    chunk = nearest_chunk_tokens(wanted, block)

    assert chunk >= block
    assert chunk % block == 0
    assert chunk == block or abs(chunk - wanted) * 2 <= block


@given(st.integers(0, 12), st.integers(1, 5))
def test_a_run_knows_the_tokens_of_its_chunks(tokens: int, chunk_tokens: int) -> None:
    made = ChunkFormat.of(
        LAYOUT, model_name="m", world_size=1, ranks=(0,), chunk_tokens=chunk_tokens, save_unfull_chunk=True
    )

    run = made.run(token_array(range(tokens)), "", "")

    assert run.tokens(0, len(run.digests)) == tokens
    assert sum(run.tokens(place, place + 1) for place in range(len(run.digests))) == tokens


def test_a_run_without_its_rest_has_full_chunks_alone() -> None:
    run = format_of().run(TOKENS, "", "")

    assert (run.rest_tokens, run.tokens(0, 2), run.tokens(1, 1), run.tokens(2, 1)) == (0, 512, 0, 0)
