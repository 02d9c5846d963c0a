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
        ("tcp://127.0.0.1:7800", "tcp://127.0.0.1:7800"),
        ("tcp://127.9.9.9:1", "tcp://127.9.9.9:1"),
        ("tcp://localhost:7800", "tcp://127.0.0.1:7800"),
        ("tcp://[::1]:7800", "tcp://[::1]:7800"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
    ],
)
def test_an_address_that_is_taken(text: str, used: str) -> None:
    assert judge_server_address(text) == used


ANY = "must be tcp:// with a loopback address and a port, such as tcp://127.0.0.1:7800"
PATH = "must have the absolute path of a socket, such as ipc:///run/lmcache-core/server.sock"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must be ipc:// with an absolute path, or tcp:// with a loopback address and a port"),
        ("localhost:5555", "must be ipc:// with an absolute path, or tcp:// with a loopback address and a port"),
        ("/run/x.sock", "must say ipc:// before the path; write 'ipc:///run/x.sock'"),
        ("ipc://run/x.sock", PATH),
        ("ipc:///run/", PATH),
        ("ipc:///run/*", "must have a path without control characters and without * and ?"),
        ("tcp://127.0.0.1", ANY),
        ("tcp://127.0.0.1:1/x", ANY),
        ("tcp://127.0.0.1:7800:7800", "must have one port, such as tcp://127.0.0.1:7800"),
        ("tcp://127.0.0.1:99999", "must have one port, such as tcp://127.0.0.1:7800"),
        (
            "ipc:///" + "x" * 90,
            "has a path of 91 bytes, more than the 90 that a socket may have; choose a shorter one",
        ),
    ],
)
def test_an_address_that_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        judge_server_address(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "10.0.0.7", "cache-1", "[::]"])
def test_an_address_that_other_hosts_could_reach(problems: Problems, host: str) -> None:
    assert problems(f"server_address = 'tcp://{host}:7800'") == [
        f"lmcache.toml:1: server_address: is on {host.strip('[]')!r}, which is no loopback address: the server shares memory with its clients, so they are on one host; write 127.0.0.1 or an ipc:// path"
    ]


@given(st.text())
def test_any_other_text_is_taken_or_refused_and_taken_again(text: str) -> None:
    for scheme in ("", "ipc:///", "tcp://", "tcp://127.0.0.1:"):
        with contextlib.suppress(ValueError):
            used = judge_server_address(scheme + text)
            assert judge_server_address(used) == used
