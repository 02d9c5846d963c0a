"""Room for a large block among small ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.memory.window import FREE, Piece, coldest_window


def pieces_of(*shape: tuple[int, int] | None) -> list[Piece]:
    """Pieces side by side, from (bytes, rank); None is a leased block between them."""
    made, offset = [], 0
    for one in shape:
        if one is not None:
            made.append(Piece(offset, one[0], one[1], b"" if one[1] == FREE else bytes([one[1]])))
        offset += one[0] if one is not None else 1
    return made


def test_the_oldest_neighbours_go() -> None:
    assert coldest_window(pieces_of((1, 5), (1, 4), (1, 0), (1, 1), (1, 9)), 2) == [b"\x00", b"\x01"]


def test_free_room_beside_a_chunk_counts() -> None:
    assert coldest_window(pieces_of((1, 0), (1, 3), (3, FREE), (1, 1)), 4) == [b"\x01"]


def test_no_window_goes_over_a_leased_block() -> None:
    assert coldest_window(pieces_of((1, 0), None, (1, 1), (1, 2)), 2) == [b"\x01", b"\x02"]


def test_there_may_be_none() -> None:
    assert coldest_window(pieces_of((1, 0), None, (1, 1)), 2) == []
    assert coldest_window([], 1) == []


@st.composite
def arenas(draw: st.DrawFn) -> list[Piece]:
    sizes = draw(st.lists(st.integers(1, 5), max_size=12))
    ranks = draw(st.permutations(range(len(sizes))))
    kinds = draw(st.lists(st.sampled_from(["chunk", "free", "leased"]), min_size=len(sizes), max_size=len(sizes)))
    made, offset = [], 0
    for size, rank, kind in zip(sizes, ranks, kinds, strict=True):
        if kind == "chunk":
            made.append(Piece(offset, size, rank, bytes([rank])))
        elif kind == "free":
            made.append(Piece(offset, size, FREE, b""))
        offset += size
    return made


@given(arenas(), st.integers(1, 20))
def test_it_is_what_a_search_of_all_windows_finds(pieces: list[Piece], need: int) -> None:
    ways = []
    for first in range(len(pieces)):
        total, ranks = 0, []
        for place in range(first, len(pieces)):
            if place > first and pieces[place - 1].offset + pieces[place - 1].size_bytes != pieces[place].offset:
                break
            total += pieces[place].size_bytes
            ranks.append(pieces[place].rank)
            if total >= need:
                ways.append(max(ranks))
                break
    chosen = coldest_window(pieces, need)

    if not ways:
        assert chosen == []
    else:
        assert max((digest[0] for digest in chosen), default=FREE) == min(ways)
        sizes = {piece.digest: piece.size_bytes for piece in pieces}
        assert sum(sizes[digest] for digest in chosen) < need + max(sizes.values())
