"""Asking a server for its status: the answer, or one sentence."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.cli.server_status import ScriptedServer, status_document, telling

from lmcache_core.cli.server_at import server_at
from lmcache_core.cli.server_page import ServerPage
from lmcache_core.errors import ConfigError, LMCacheError
from lmcache_core.wire.codec import Encoder
from lmcache_core.wire.messages import Done, Refused

START = "start one with: lmcachectl serve, or name its address with --address"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ScriptedServer]:
    with ScriptedServer(tmp_path, telling(status_document())) as server:
        yield server


def why_not(address: str, timeout_s: float = 2.0) -> str:
    with pytest.raises(LMCacheError) as caught:
        ServerPage(address).read(timeout_s)
    return str(caught.value)


def test_the_answer_is_the_document(server: ScriptedServer) -> None:
    assert ServerPage(server.address).read() == status_document()


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    assert why_not(f"ipc://{tmp_path}/s") == (
        f"no cache server answers at ipc://{tmp_path}/s: there is no such socket; {START}"
    )


def test_a_socket_whose_server_is_dead(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))

    assert why_not(f"ipc://{tmp_path}/s") == (
        f"no cache server answers at ipc://{tmp_path}/s: its server has ended and left the socket; {START}"
    )


def test_a_port_at_which_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    assert why_not(f"tcp://127.0.0.1:{port}") == (
        f"no cache server answers at tcp://127.0.0.1:{port}: connection refused; {START}"
    )


def test_a_server_that_is_stopped(tmp_path: Path) -> None:
    with ScriptedServer(tmp_path, lambda _: None) as server:
        assert why_not(server.address, 0.2) == (
            f"no answer from {server.address} within 0.2 s: the server is stopped or stuck, or it is another program"
        )


def test_a_server_that_refuses(tmp_path: Path) -> None:
    refusal = Encoder().encode(Refused(call=1, code="internal", message="not now\x1b[2J", boot_id="b"))
    with ScriptedServer(tmp_path, lambda _: refusal) as server:
        assert why_not(server.address) == f"the server at {server.address} refuses: not now?[2J"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400", Encoder().encode(Done(call=1, count=0))])
def test_another_program(tmp_path: Path, answer: bytes) -> None:
    with ScriptedServer(tmp_path, lambda _: answer) as server:
        assert why_not(server.address) == f"what answers at {server.address} is no cache server; {START}"


@pytest.mark.parametrize("document", [[1], {}, {"health": "well"}])
def test_a_document_that_is_none(tmp_path: Path, document: object) -> None:
    with ScriptedServer(tmp_path, telling(document)) as server:
        assert why_not(server.address) == f"what answers at {server.address} is no cache server; {START}"


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerPage("tcp://10.0.0.7:1")

    assert str(caught.value).startswith(
        "--address: 'tcp://10.0.0.7:1' is on '10.0.0.7', and a cache server shares memory"
    )


# -- which server ---------------------------------------------------------------------


def test_the_address_that_is_named_wins(tmp_path: Path) -> None:
    (tmp_path / "lmcache.toml").write_text('server_address = "ipc:///run/configured"\n')

    assert server_at("ipc:///run/named", None).address == "ipc:///run/named"


def test_else_the_configured_one_though_the_file_is_wrong_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "lmcache.toml").write_text('server_address = "ipc:///run/configured"\nchunk_sise = 1\n')

    assert server_at(None, None).address == "ipc:///run/configured"


def test_else_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lmcache-core").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    assert server_at(None, None).address == f"ipc://{tmp_path}/lmcache-core/server.sock"


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lmcache_core.cli.server_page")
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ConfigError) as caught:
        server_at(None, None)

    assert str(caught.value) == "a cache server is asked through 'zmq'; run: pip install 'lmcache-core[server]'"
