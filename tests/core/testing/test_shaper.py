"""What becomes of bytes, without sockets: it depends on their places, not on the pieces they come in."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.testing import Corrupt, Cut, Drip, Hang, Latency, NetworkFault, Way
from lmcache_core.testing.shaper import Applied, Piece, Shaper

DATA = bytes(range(256)) * 4


def shape(pieces: list[bytes], *faults: NetworkFault, seed: str = "7") -> tuple[bytes, str]:
    """Give what passes, and how it ended."""
    shaper = Shaper(Way.REPLIES, seed)
    applied = [Applied(number, fault) for number, fault in enumerate(faults)]
    out = b""
    for data in pieces:
        piece = Piece(data, 0.0, set())
        while piece.data:
            move = shaper.next(piece, applied, now_s=1000.0)
            out += move.data
            piece.data = piece.data[len(move.data) :]
            if move.ends is not None:
                return out, "ended"
            if move.wait_s is None:
                return out, "held"
    return out, "passed"


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(0, len(DATA)), max_size=20)) | {0, len(DATA)})
    return [DATA[a:b] for a, b in itertools.pairwise(cuts)]


@given(pieces(), st.integers(1, 300))
def test_corruption_depends_on_places_only(cut: list[bytes], every_bytes: int) -> None:
    fault = Corrupt(every_bytes=every_bytes)

    assert shape(cut, fault) == shape([DATA], fault)


@given(pieces(), st.integers(1, 300))
def test_each_run_of_bytes_has_one_wrong(cut: list[bytes], every_bytes: int) -> None:
    out, _ = shape(cut, Corrupt(every_bytes=every_bytes))
    wrong = [place for place, (got, right) in enumerate(zip(out, DATA, strict=True)) if got != right]
    whole_runs = len(DATA) // every_bytes

    assert [place // every_bytes for place in wrong][:whole_runs] == list(range(whole_runs))


@given(pieces(), st.integers(0, len(DATA) - 1))
def test_a_cut_is_at_its_place(cut: list[bytes], after_bytes: int) -> None:
    assert shape(cut, Cut(after_bytes)) == (DATA[:after_bytes], "ended")


@given(pieces(), st.integers(0, len(DATA) - 1))
def test_a_hang_is_at_its_place(cut: list[bytes], after_bytes: int) -> None:
    assert shape(cut, Hang(after_bytes)) == (DATA[:after_bytes], "held")


@given(pieces(), st.integers(0, len(DATA)), st.integers(0, len(DATA)))
def test_of_two_places_the_first_counts(cut: list[bytes], cut_bytes: int, hang_bytes: int) -> None:
    out, _ = shape(cut, Cut(cut_bytes), Hang(hang_bytes))

    assert out == DATA[: min(cut_bytes, hang_bytes)]


@given(pieces(), st.floats(1.0, 1e6))
def test_a_drip_loses_nothing(cut: list[bytes], bytes_per_s: float) -> None:
    assert shape(cut, Drip(bytes_per_s)) == (DATA, "passed")


def test_a_drip_pauses_as_long_as_its_bytes_take() -> None:
    shaper, piece = Shaper(Way.REPLIES, "7"), Piece(DATA, 0.0, set())
    move = shaper.next(piece, [Applied(1, Drip(1000.0))], now_s=0.0)

    assert (len(move.data), move.wait_s) == (20, 0.02)


def test_latency_counts_from_the_arrival() -> None:
    shaper, piece = Shaper(Way.REPLIES, "7"), Piece(DATA, 10.0, set())

    assert shaper.next(piece, [Applied(1, Latency(2.0))], now_s=11.5).wait_s == 0.5


def test_jitter_is_drawn_once_a_piece() -> None:
    shaper, piece, applied = Shaper(Way.REPLIES, "7"), Piece(DATA, 0.0, set()), [Applied(1, Latency(0.0, 10.0))]
    first = shaper.next(piece, applied, now_s=0.0)

    assert 0 < first.wait_s < 10.0
    assert shaper.next(piece, applied, now_s=first.wait_s).data == DATA


def test_faults_of_the_other_way_do_nothing() -> None:
    assert shape([DATA], Cut(0, way=Way.REQUESTS), Hang(way=Way.REQUESTS)) == (DATA, "passed")


def test_the_same_fault_put_in_force_again_counts_anew() -> None:
    shaper, piece = Shaper(Way.REPLIES, "7"), Piece(DATA, 0.0, set())
    first = shaper.next(piece, [Applied(1, Hang(10))], now_s=0.0)
    again = shaper.next(piece, [Applied(2, Hang(10))], now_s=0.0)

    assert (len(first.data), len(again.data)) == (10, 10)
