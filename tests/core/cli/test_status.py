"""``lmcachectl status``: the screen, JSON and the exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.core.cli.server_status import ScriptedServer, status_document, telling

from lmcache_core.cli.main import main
from lmcache_core.cli.status_text import draw_status


def drawn(document: dict[str, Any], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False)
    console.print(draw_status(document))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines)


SCREEN = """\
● UP for 91 s   lmcache-core 0.1.0, pid 4711, up 2 h
address  ipc:///run/lmcache-core/server.sock
config   /etc/lmcache/lmcache.toml
pages    http://127.0.0.1:6999, 127.0.0.1:7999
memory   41.0 GiB of 64.0 GiB in use (64.1 %), 1,312 chunks, 96.0 MiB lent
tokens   25.1 M stored, 91.2 M looked up, 72.5 % of them found, 66.0 M retrieved
moved    3.00 TiB in, 8.00 TiB out, 1.23 M calls, 3 of them refused

tier             state  used                  waiting  where, and what is amiss
LocalCPUBackend  up     41.0 GiB of 64.0 GiB  0        memory of this server
RemoteBackend    open   -                     128      redis://cache-1:6379: connection refused

client    pid  model                              rank    leases  oldest  lent      promised  idle
worker-1  102  meta-llama/Llama-3.1-70B-Instruct  1 of 2  1       10 min  32.0 MiB  0         0.1 s
worker-0  101  meta-llama/Llama-3.1-70B-Instruct  0 of 2  2       0.4 s   64.0 MiB  3         0.1 s

tenant   used      quota     share   chunks
default  30.0 GiB  -         -       960
team-a   11.0 GiB  16.0 GiB  68.8 %  352"""


def test_the_whole_screen() -> None:
    assert drawn(status_document()) == SCREEN


def test_the_reference_page_shows_it() -> None:
    page = Path(__file__).parents[3] / "docs/reference/command-line.md"

    assert f"\n{SCREEN}\n" in page.read_text()


def test_what_is_amiss_stands_above() -> None:
    document = status_document()
    document["health"] = {"healthy": True, "state": "degraded", "reason": "check 'x' fails: no", "since_s": 3.0}
    document["plugins_failed"] = {"acme": "acme 1.0: ImportError: no"}

    assert drawn(document).splitlines()[:3] == [
        "◐ DEGRADED for 3.0 s   lmcache-core 0.1.0, pid 4711, up 2 h",
        "  check 'x' fails: no",
        "  plugin acme failed: acme 1.0: ImportError: no",
    ]


def test_a_server_that_ends_says_so() -> None:
    assert drawn({**status_document(), "draining": True}).startswith("◐ DRAINING for ")


def test_without_clients_and_tenants() -> None:
    shown = drawn({**status_document(), "sessions": [], "tenants": []})

    assert shown.splitlines()[-1] == "no client is connected"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_screen_fits_its_terminal(width: int) -> None:
    assert max(map(len, drawn(status_document(), width).splitlines())) <= width


def test_a_usual_screen_has_few_lines() -> None:
    assert len(drawn(status_document(), 100).splitlines()) < 24


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(status_document())), JSON))
def test_whatever_came_over_the_wire_is_drawn_and_steers_nothing(odd: dict[str, Any]) -> None:
    shown = drawn({**status_document(), **odd})

    assert all(letter.isprintable() or letter == "\n" for letter in shown)


@given(JSON)
def test_odd_rows_are_drawn_too(odd: object) -> None:
    document = {name: [odd, {"registrations": odd, "name": odd, "ranks": odd}] for name in ("sessions", "tiers")}

    assert drawn({**document, "tenants": [{"tenant": odd, "used_bytes": odd}]})


# -- the command ----------------------------------------------------------------------


def run(folder: Path, document: dict[str, Any], *options: str) -> int:
    with ScriptedServer(folder, telling(document)) as server:
        return main(["status", "--address", server.address, *options])


def test_a_healthy_server_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, status_document()) == 0
    assert capsys.readouterr().out == SCREEN + "\n"


def test_an_unhealthy_server_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {**status_document(), "health": {"healthy": False, "state": "down", "reason": "no", "since_s": 1.0}}

    assert run(tmp_path, document) == 1
    assert capsys.readouterr().out.startswith("■ DOWN for 1.0 s")


def test_json_is_the_whole_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, status_document(), "--json") == 0
    assert json.loads(capsys.readouterr().out) == status_document()


def test_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--address", f"ipc://{tmp_path}/s"]) == 1
    assert capsys.readouterr().err == (
        f"error: no cache server answers at ipc://{tmp_path}/s: there is no such socket; start one with: lmcachectl serve, or name its address with --address\n"
    )


def test_an_address_that_is_none_is_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--address", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: --address: 'nowhere' is on 'nowhere', and a cache server shares memory with its clients, "
    )
