from __future__ import annotations

import pytest

from lmcache_core.cli.quantity import bytes_text, count_text, share_text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (32 << 20, "32.0 MiB"),
        (int(3.21 * (1 << 30)), "3.21 GiB"),
        (999 << 40, "999 TiB"),
        (5000 << 40, "5000 TiB"),
        (None, "-"),
        ("5", "-"),
        (True, "-"),
    ],
)
def test_bytes(amount: object, text: str) -> None:
    assert bytes_text(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (9999, "9,999"), (12_345, "12.3 k"), (4_560_000, "4.56 M"), (1.5, "2"), (None, "-"), (False, "-")],
)
def test_counts(amount: object, text: str) -> None:
    assert count_text(amount) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"), [(1, 3, "33.3 %"), (0, 5, "0.0 %"), (1, 0, "-"), (None, 5, "-"), (1, None, "-")]
)
def test_shares(part: object, whole: object, text: str) -> None:
    assert share_text(part, whole) == text
