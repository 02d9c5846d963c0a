import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.core.health.tower import SteeredCheck, Watchtower
from tests.memory_store import Rig

from lmcache_core.cli.main import main
from lmcache_core.ops.pages import Pages
from lmcache_core.ops.server import OpsServer

Serve = Callable[..., str]
ENABLE = "start the cache with internal_api_server_enabled = true, or name its address with --url"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A running cache's pages; gives their address."""
    closing: list[Callable[[], object]] = []

    def start(*checks: SteeredCheck, **how: object) -> str:
        tower = Watchtower(Rig(), list(checks), **how)
        server = OpsServer(Pages(tower.monitor, tower.metrics, tower.threads), port=0)
        closing.extend([server.stop, tower.monitor.stop, tower.rig.close])
        server.start()
        tower.start()
        assert server.address is not None
        return server.address

    yield start
    for close in closing:
        close()


@pytest.fixture
def answer() -> Iterator[Callable[[int, bytes], str]]:
    """Another program's HTTP server; gives its address."""
    servers: list[HTTPServer] = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_healthy_cache_ends_with_0(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    url = serve()
    code = main(["health", "--url", url])

    assert code == 0
    assert re.fullmatch(rf"UP for \d\.\d s, says {url}/health\n", capsys.readouterr().out)


def test_an_unhealthy_one_ends_with_1_and_says_why(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    url = serve(SteeredCheck("disk", run=lambda: False, interval=3600.0), SteeredCheck("other", interval=3600.0))
    code = main(["health", "--url", url])
    lines = capsys.readouterr().out.splitlines()

    assert code == 1
    assert lines[0].startswith("DOWN for ")
    assert lines[0].endswith(f" s, says {url}/health: check 'disk' fails: check() returned False; policy recompute")
    assert [line.split("  ")[0].split()[0] for line in lines[2:]] == ["check", "disk", "other"]
    assert lines[2].split() == ["check", "state", "since", "age", "next", "run", "policy", "reason"]
    assert "down" in lines[3]
    assert "recompute (engaged)" in lines[3]
    assert lines[3].endswith("check() returned False")
    assert "60 min" in lines[4] or "59 min" in lines[4]


def test_json_is_the_page(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["health", "--json", "--url", serve(SteeredCheck("disk", run=lambda: False))])
    report = json.loads(capsys.readouterr().out)

    assert code == 1
    assert (report["state"], report["checks"][0]["name"]) == ("down", "disk")


def test_bypasses_and_lost_plugins_are_listed(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    url = serve(plugins_failed={"theirs": "no module"}, bypassed=lambda: {"RemoteBackend": ("operator:alice",)})
    code = main(["health", "--url", url])
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    assert lines[-3:] == ["bypassed: RemoteBackend: operator:alice", "", "failed plugin: theirs: no module"]


def test_the_scheme_may_be_left_out(serve: Serve) -> None:
    assert main(["health", "--url", serve().removeprefix("http://")]) == 0


def test_nobody_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    code = main(["health", "--url", url])

    assert code == 1
    assert capsys.readouterr().err == f"error: no cache answers at {url}/health: connection refused; {ENABLE}\n"


def test_no_answer_is_given_up_after_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmcache_core.cli.cache_page.TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code = main(["health", "--url", url])

    assert code == 1
    assert capsys.readouterr().err == f"error: no answer from {url}/health within 0.1 s; {ENABLE}\n"


@pytest.mark.parametrize("body", [b"hello", b"[]", b"{}", b'{"healthy": true}', b"\xff\xfe", b""])
def test_another_programs_page_is_told_apart(
    answer: Callable[[int, bytes], str], capsys: pytest.CaptureFixture[str], body: bytes
) -> None:
    url = answer(200, body)
    code = main(["health", "--url", url])

    assert code == 1
    assert capsys.readouterr().err == f"error: {url}/health is no cache's health page; {ENABLE}\n"


def test_another_status_is_told_apart(answer: Callable[[int, bytes], str], capsys: pytest.CaptureFixture[str]) -> None:
    url = answer(404, b"not found")
    code = main(["health", "--url", url])

    assert code == 1
    assert capsys.readouterr().err == f"error: {url}/health answers 404 and is no cache's health page; {ENABLE}\n"


def test_a_server_that_speaks_no_http_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(b"-ERR unknown command\r\n")

        threading.Thread(target=reply, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        code = main(["health", "--url", url])

    assert code == 1
    assert capsys.readouterr().err == f"error: no cache answers at {url}/health: BadStatusLine; {ENABLE}\n"


def test_control_characters_do_not_reach_the_terminal(
    answer: Callable[[int, bytes], str], capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"healthy": False, "state": "down", "reason": "\x1b[2Jgone", "since_s": 1, "checks": []})
    url = answer(503, body.encode())
    main(["health", "--url", url])

    assert capsys.readouterr().out == f"DOWN for 1.0 s, says {url}/health: ?[2Jgone\n"


def test_a_page_of_odd_types_is_shown_as_far_as_it_goes(
    answer: Callable[[int, bytes], str], capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"healthy": 1, "checks": [7, {"name": None, "age_s": "x", "since_s": True}], "bypassed": 3})
    url = answer(200, body.encode())
    code = main(["health", "--url", url])

    assert code == 1
    assert capsys.readouterr().out.splitlines()[0] == f" for -, says {url}/health"


def test_a_proxy_of_the_environment_is_not_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert main(["health", "--url", serve()]) == 0


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "ftp://alice:canary@host",
            "--url: ftp://host is no HTTP address; write http://host:port, such as http://127.0.0.1:6999",
        ),
        ("http://", "--url: http:// is no HTTP address; write http://host:port, such as http://127.0.0.1:6999"),
    ],
)
def test_an_address_that_is_none_ends_with_2(url: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["health", "--url", url])

    assert code == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"
