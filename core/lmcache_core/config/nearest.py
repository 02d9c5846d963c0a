"""The known name that is nearest to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

_SEPARATORS = re.compile(r"[_\-.\s]+")
_TYPING_SLIP = 0.75
_RELATED = 0.45


def respelt(word: str, known: Iterable[str]) -> str | None:
    """Give the known name that differs by case and separators only; else None."""
    letters = _letters(word)
    return next((name for name in known if _letters(name) == letters), None)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known name that a typing slip explains: case, separators, or a few letters; else None."""
    return _closest(word, known, _TYPING_SLIP)


def suggestion(word: str, known: Iterable[str], *, show: Callable[[str], str] = repr) -> str:
    """Give the end of a sentence that names the nearest known name; ``""`` where nothing is near.

    Args:
        word: The unknown name.
        known: The known ones.
        show: How a known name is written into the sentence.
    """
    names = list(known)
    slip = nearest(word, names)
    if slip is not None:
        return f"; did you mean {show(slip)}?"
    related = _closest(word, names, _RELATED)
    return f"; the nearest known name is {show(related)}" if related is not None else ""


def _closest(word: str, known: Iterable[str], cutoff: float) -> str | None:
    by_letters: dict[str, str] = {}
    for name in known:
        by_letters.setdefault(_letters(name), name)
    found = get_close_matches(_letters(word), by_letters, n=1, cutoff=cutoff)
    return by_letters[found[0]] if found else None


def _letters(word: str) -> str:
    return _SEPARATORS.sub("", word).lower()
