"""Addresses as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmcache_core.errors import ConfigError
from lmcache_core.wire.address import default_address, parse_address


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("ipc:///run/a/server.sock", "ipc:///run/a/server.sock"),
        ("/run/a/server.sock", "ipc:///run/a/server.sock"),
        ("tcp://127.0.0.1:7001", "tcp://127.0.0.1:7001"),
        ("127.0.0.1:7001", "tcp://127.0.0.1:7001"),
        ("localhost:7001", "tcp://127.0.0.1:7001"),
        ("tcp://localhost:0", "tcp://127.0.0.1:0"),
    ],
)
def test_an_address_is_normalised(text: str, normal: str) -> None:
    assert str(parse_address(text)) == normal


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be ipc:///path/of/a.sock or tcp://127.0.0.1:port"),
        ("127.0.0.1", "must have one port from 0 to 65535, such as tcp://127.0.0.1:7800"),
        ("tcp://[::1]:7001", "must not be an IPv6 address; write tcp://127.0.0.1:port"),
    ],
)
def test_what_the_configuration_refuses_is_refused_with_its_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)

    assert str(caught.value) == f"server_address: {text!r} {problem}"


def test_the_default_is_a_socket_in_the_users_runtime_directory(tmp_path: Path) -> None:
    address = default_address({"XDG_RUNTIME_DIR": str(tmp_path)})

    assert address == f"ipc://{tmp_path}/lmcache-core/server.sock"
