import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_plugins.upstream.envelope import HEADER_BYTES, Envelope

FULL = 640
DIGEST = bytes(range(32))


def sealed(chunk: bytes, full: int = FULL) -> memoryview:
    envelope = Envelope(full)
    frame = envelope.empty()
    frame[:] = b"\xaa" * envelope.frame_bytes
    envelope.seal(frame, memoryview(chunk), DIGEST)
    return frame


@given(st.binary(min_size=1, max_size=FULL))
def test_what_is_sealed_is_opened(chunk: bytes) -> None:
    assert bytes(Envelope(FULL).open(sealed(chunk), DIGEST)) == chunk


@given(st.binary(min_size=1, max_size=FULL), st.data())
def test_no_damage_is_ever_given_out(chunk: bytes, data: st.DataObject) -> None:
    frame = sealed(chunk)
    at = data.draw(st.integers(0, HEADER_BYTES + len(chunk) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))

    assert isinstance(Envelope(FULL).open(frame, DIGEST), str)


@given(st.binary(max_size=FULL + HEADER_BYTES))
def test_bytes_of_others_are_never_opened(raw: bytes) -> None:
    padded = bytearray(FULL + HEADER_BYTES)
    padded[: len(raw)] = raw

    assert isinstance(Envelope(FULL).open(memoryview(padded), DIGEST), str)


@pytest.mark.parametrize(
    ("at", "defect"),
    [(0, "magic"), (8, "header"), (24, "header"), (32, "header"), (120, "header"), (HEADER_BYTES, "checksum")],
)
def test_damage_has_a_name(at: int, defect: str) -> None:
    frame = sealed(b"x" * FULL)
    frame[at] ^= 1

    assert Envelope(FULL).open(frame, DIGEST) == defect


def test_the_chunk_of_another_key_is_refused() -> None:
    assert Envelope(FULL).open(sealed(b"x"), bytes(32)) == "key"


def test_a_chunk_of_another_full_size_is_refused() -> None:
    frame = sealed(b"x" * FULL, full=FULL)

    assert Envelope(FULL - 1).open(frame[:-1], DIGEST) == "shape"


def test_a_cut_frame_is_refused() -> None:
    assert Envelope(FULL).open(sealed(b"x")[:-1], DIGEST) == "length"
