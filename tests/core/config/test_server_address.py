"""Addresses of a cache server: taken as they are used, or refused with a sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.config.server_address import judge_server_address

Problems = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("ipc:///run/lmcache-core/server.sock", "ipc:///run/lmcache-core/server.sock"),
        (" ipc:///a ", "ipc:///a"),
        ("/run/a.sock", "ipc:///run/a.sock"),
        ("tcp://127.0.0.1:7800", "tcp://127.0.0.1:7800"),
        ("tcp://localhost:07800", "tcp://127.0.0.1:7800"),
        ("127.0.0.1:7800", "tcp://127.0.0.1:7800"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
    ],
)
def test_an_address_that_is_taken(text: str, used: str) -> None:
    assert judge_server_address(text) == used


FORMS = "ipc:///path/of/a.sock or tcp://127.0.0.1:port"
PORT = "must have one port from 0 to 65535, such as tcp://127.0.0.1:7800"
PATH = f"must have the absolute path of a socket file; write {FORMS}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"must be {FORMS}"),
        ("http://127.0.0.1:1", f"must be {FORMS}"),
        ("ipc://run/x.sock", PATH),
        ("ipc:///run/", PATH),
        ("ipc:///run/*", "must have a path without control characters, * and ?"),
        ("ipc:///run/\x1b", "must have a path without control characters, * and ?"),
        ("tcp://127.0.0.1", PORT),
        ("tcp://127.0.0.1:1/x", PORT),
        ("tcp://127.0.0.1:7800:7800", PORT),
        ("tcp://127.0.0.1:99999", PORT),
        ("tcp://[::1]:7800", "must not be an IPv6 address; write tcp://127.0.0.1:port"),
        (
            "ipc:///" + "x" * 100,
            "has a path of 101 bytes, more than the 100 that a socket's may have; choose a shorter one",
        ),
    ],
)
def test_an_address_that_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        judge_server_address(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "10.0.0.7", "cache-1"])
def test_an_address_that_other_hosts_could_reach(problems: Problems, host: str) -> None:
    assert problems(f"server_address = 'tcp://{host}:7800'") == [
        f"lmcache.toml:1: server_address: is on {host!r}, and a cache server shares memory with its clients, so it speaks to its own host only; write {FORMS}"
    ]


@given(st.text())
def test_any_other_text_is_taken_or_refused_and_taken_again(text: str) -> None:
    for scheme in ("", "ipc:///", "tcp://", "tcp://127.0.0.1:"):
        with contextlib.suppress(ValueError):
            used = judge_server_address(scheme + text)
            assert judge_server_address(used) == used
