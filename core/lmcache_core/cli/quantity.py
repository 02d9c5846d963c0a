"""Amounts as people read them."""

from __future__ import annotations

_KIB = 1024
_BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB")
_THOUSAND = 1000
_COUNTS = ("", " k", " M", " G", " T")
_PLAIN_BELOW = 10_000


def bytes_text(amount: object) -> str:
    """Write bytes in their best unit: ``3.21 GiB``; ``-`` for none."""
    if not _is_number(amount):
        return "-"
    size = float(amount)  # type: ignore[arg-type] # judged above
    unit = 0
    while abs(size) >= _KIB and unit < len(_BYTES) - 1:
        size, unit = size / _KIB, unit + 1
    return f"{_digits(size)} {_BYTES[unit]}" if unit else f"{size:.0f} {_BYTES[0]}"


def count_text(amount: object) -> str:
    """Write a count: ``9,999``, ``12.3 k``, ``4.56 M``; ``-`` for none."""
    if not _is_number(amount):
        return "-"
    count = float(amount)  # type: ignore[arg-type] # judged above
    if abs(count) < _PLAIN_BELOW:
        return f"{count:,.0f}"
    unit = 0
    while abs(count) >= _THOUSAND and unit < len(_COUNTS) - 1:
        count, unit = count / _THOUSAND, unit + 1
    return f"{_digits(count)}{_COUNTS[unit]}"


def share_text(part: object, whole: object) -> str:
    """Write a part of a whole in percent; ``-`` where there is no whole."""
    if not _is_number(part) or not _is_number(whole) or not whole:
        return "-"
    return f"{100 * float(part) / float(whole):.1f} %"  # type: ignore[arg-type] # judged above


def _digits(number: float) -> str:
    """Three digits that count, and no exponent."""
    if abs(number) >= 100:  # noqa: PLR2004 - three digits before the point
        return f"{number:.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"  # noqa: PLR2004 - two digits before the point


def _is_number(amount: object) -> bool:
    return isinstance(amount, (int, float)) and not isinstance(amount, bool)
