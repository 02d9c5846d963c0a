import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.codec.frame import HEADER_BYTES, FrameCodec
from lmcache_core.contracts.layout import KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_size=4, dtype="float16")
CODEC = FrameCodec(LAYOUT, 4)
DIGEST = bytes(range(32))


def sealed() -> bytearray:
    frame = bytearray(CODEC.frame_bytes)
    frame[HEADER_BYTES:] = bytes(number % 251 for number in range(CODEC.payload_bytes))
    CODEC.seal(memoryview(frame), DIGEST)
    return frame


def test_sealed_frame_has_no_defect() -> None:
    assert CODEC.defect(memoryview(sealed()), DIGEST) is None


def test_seal_leaves_the_payload_alone() -> None:
    assert bytes(sealed()[HEADER_BYTES:]) == bytes(number % 251 for number in range(CODEC.payload_bytes))


@given(st.integers(0, CODEC.frame_bytes * 8 - 1))
def test_any_flipped_bit_is_a_defect(bit: int) -> None:
    frame = sealed()
    frame[bit // 8] ^= 1 << bit % 8

    assert CODEC.defect(memoryview(frame), DIGEST) is not None


@given(st.binary(min_size=CODEC.frame_bytes, max_size=CODEC.frame_bytes))
def test_noise_is_a_defect(noise: bytes) -> None:
    assert CODEC.defect(memoryview(noise), DIGEST) == "magic"


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, CODEC.frame_bytes - 1])
def test_short_frame_is_a_defect(length: int) -> None:
    assert CODEC.defect(memoryview(sealed())[:length], DIGEST) == "length"


def test_frame_of_another_key_is_a_defect() -> None:
    assert CODEC.defect(memoryview(sealed()), bytes(32)) == "key"


def test_frame_of_another_shape_is_a_defect() -> None:
    other = FrameCodec(KVLayout(num_layers=1, num_kv_heads=2, head_size=4, dtype="float16"), 4)

    assert other.frame_bytes == CODEC.frame_bytes
    assert other.defect(memoryview(sealed()), DIGEST) == "shape"


def test_flipped_payload_byte_is_named() -> None:
    frame = sealed()
    frame[-1] ^= 0xFF

    assert CODEC.defect(memoryview(frame), DIGEST) == "checksum"


def test_header_bytes_are_the_golden_ones() -> None:
    """Stored chunks outlive a release: a changed header needs a new version number."""
    assert sealed()[:48].hex() == (
        "4c4d434652414d450100800000000000666c6f6174313600000000000000000080000000000000006638326634353866"
    )
