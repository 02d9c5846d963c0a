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


FORMS = "write ipc:///path/of/a.sock or tcp://127.0.0.1:port"
OTHERS = "could be reached from other hosts, and a cache server speaks to this host only; write tcp://127.0.0.1:port"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"server_address: '' has no port; {FORMS}"),
        ("127.0.0.1", f"server_address: '127.0.0.1' has no port; {FORMS}"),
        ("tcp://127.0.0.1:", f"server_address: 'tcp://127.0.0.1:' has no port; {FORMS}"),
        ("127.0.0.1:7001:7001", f"server_address: '127.0.0.1:7001:7001' has more than one port; {FORMS}"),
        ("tcp://10.0.0.1:7001", f"server_address: 'tcp://10.0.0.1:7001' {OTHERS}"),
        ("0.0.0.0:7001", f"server_address: '0.0.0.0:7001' {OTHERS}"),
        ("*:7001", f"server_address: '*:7001' {OTHERS}"),
        (
            "tcp://[::1]:7001",
            "server_address: 'tcp://[::1]:7001' is an IPv6 address, which is not served; write tcp://127.0.0.1:port",
        ),
        ("::1", "server_address: '::1' is an IPv6 address, which is not served; write tcp://127.0.0.1:port"),
        (
            "fe80::1:7",
            "server_address: 'fe80::1:7' is an IPv6 address, which is not served; write tcp://127.0.0.1:port",
        ),
        ("127.0.0.1:http", "server_address: '127.0.0.1:http' has port 'http'; write a number from 0 to 65535"),
        ("127.0.0.1:70000", "server_address: '127.0.0.1:70000' has port '70000'; write a number from 0 to 65535"),
        ("127.0.0.1:-1", "server_address: '127.0.0.1:-1' has port '-1'; write a number from 0 to 65535"),
        ("127.0.0.1:\u0667", "server_address: '127.0.0.1:\u0667' has port '\u0667'; write a number from 0 to 65535"),
        ("http://127.0.0.1:7001", f"server_address: 'http://127.0.0.1:7001' has scheme 'http'; {FORMS}"),
        ("tcp://tcp://127.0.0.1:7", f"server_address: 'tcp://tcp://127.0.0.1:7' has more than one port; {FORMS}"),
        ("ipc://a.sock", f"server_address: 'ipc://a.sock' names no socket file by its whole path; {FORMS}"),
        ("ipc:///run/", f"server_address: 'ipc:///run/' names no socket file by its whole path; {FORMS}"),
        (
            "/" + "a" * 100,
            f"server_address: the path in '/{'a' * 100}' has 101 bytes and the system takes 100; choose a shorter folder",
        ),
    ],
)
def test_what_is_no_address_of_this_host_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)

    assert str(caught.value) == sentence


def test_the_default_is_a_socket_in_the_users_runtime_directory(tmp_path: Path) -> None:
    address = default_address({"XDG_RUNTIME_DIR": str(tmp_path)})

    assert address == f"ipc://{tmp_path}/lmcache-core/server.sock"
