"""Versions meet, or the sentence names both."""

from __future__ import annotations

import pytest

from lmcache_core.wire.handshake import agree
from lmcache_core.wire.messages import Hello


def hello(oldest: int, newest: int, product: str = "lmcache-core") -> Hello:
    return Hello(
        call=1,
        product=product,
        version="0.1",
        oldest_protocol=oldest,
        protocol=newest,
        features=(),
        name="worker",
        pid=1,
    )


@pytest.mark.parametrize(
    ("client", "server", "chosen"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 4), 3), ((2, 5), (1, 2), 2), ((1, 9), (4, 4), 4), ((3, 3), (1, 9), 3)],
)
def test_the_newest_that_both_speak_is_chosen(client: tuple[int, int], server: tuple[int, int], chosen: int) -> None:
    assert agree(hello(*client), "0.2", oldest=server[0], newest=server[1]) == chosen


def test_an_older_client_is_told_both_versions() -> None:
    assert agree(hello(1, 1), "0.2", oldest=2, newest=3) == (
        "server lmcache-core 0.2 speaks protocol 2 to 3, client lmcache-core 0.1 speaks 1"
    )


def test_a_newer_client_is_told_both_versions() -> None:
    assert agree(hello(4, 5), "0.2", oldest=2, newest=2) == (
        "server lmcache-core 0.2 speaks protocol 2, client lmcache-core 0.1 speaks 4 to 5"
    )


def test_another_product_is_named() -> None:
    assert agree(hello(1, 1, "lmcache"), "0.2", oldest=1, newest=1) == (
        "server lmcache-core 0.2 speaks its own protocol 1, client 'lmcache' 0.1 is another product; "
        "connect to a server of that product"
    )
