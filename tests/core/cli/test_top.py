"""``lmcachectl top``: frames, lines, and a terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.core.cli.server_status import ScriptedServer, status_document, telling

from lmcache_core.cli.main import main
from lmcache_core.cli.top import View
from lmcache_core.cli.top_text import trace
from lmcache_core.errors import LMCacheError

RUN = "import sys; from lmcache_core.cli.main import main; sys.exit(main(sys.argv[1:]))"


class BusyPage:
    """Each status is a second and some work later than the one before."""

    address = "ipc:///run/s"

    def __init__(self) -> None:
        self.document = status_document()
        self.gone = False

    def read(self) -> dict[str, Any]:
        if self.gone:
            raise LMCacheError("no cache server answers")
        counters = self.document["counters"]
        added = {"requested_tokens": 20_000, "hit_tokens": 15_000, "retrieved_bytes": 2_000_000_000, "calls": 40}
        self.document = {
            **self.document,
            "uptime_s": self.document["uptime_s"] + 1.0,
            "counters": {name: value + added.get(name, 0) for name, value in counters.items()},
        }
        return self.document

    def answer(self, frame: bytes) -> bytes:
        return telling(self.read())(frame)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def frame(view: View, width: int = 100, lines: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False)
    console.print(view.draw(width, lines))
    return console.file.getvalue()  # type: ignore[attr-defined]


def squeezed(shown: str) -> list[str]:
    return [" ".join(line.split()) for line in shown.splitlines()]


@pytest.fixture
def page() -> BusyPage:
    return BusyPage()


@pytest.fixture
def view(page: BusyPage) -> View:
    view = View(page, Clock())
    for _ in range(3):
        view.ask()
    return view


def test_a_frame_has_rates_with_their_past(view: View) -> None:
    lines = squeezed(frame(view))

    assert "found of what was looked up 75.0 % ▆▆" in lines
    assert "tokens looked up 20.0 k ██" in lines
    assert "tokens retrieved 0 2.00 GB/s" in lines
    assert "calls 40 0 refused ██" in lines


def test_a_frame_has_memory_tiers_clients_and_tenants(view: View) -> None:
    shown = frame(view)

    assert "memory ███████████████████░░░░░░░░░░░ 41.0 GiB of 64.0 GiB, 96.0 MiB lent" in shown
    for text in ("● UP for", "RemoteBackend", "worker-1", "team-a"):
        assert text in shown


def test_the_first_frame_has_no_rates_yet(page: BusyPage) -> None:
    view = View(page)
    view.ask()

    assert "tokens looked up -" in squeezed(frame(view))


def test_a_server_that_goes_away_never_looks_well(view: View, page: BusyPage) -> None:
    page.gone = True
    view.ask()
    view._clock.now_s += 30.0  # type: ignore[attr-defined]

    assert "no answer for 30 s; this is what it said last: no cache server answers" in frame(view)
    page.gone = False
    view.ask()
    assert "no answer" not in frame(view)


def test_before_the_first_answer_it_says_why_there_is_none(page: BusyPage) -> None:
    page.gone = True
    view = View(page)
    view.ask()

    assert frame(view) == "○ NO ANSWER from ipc:///run/s\nno cache server answers\n"


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_a_frame_fits_its_terminal(view: View, width: int) -> None:
    assert max(map(len, frame(view, width).splitlines())) <= width


def test_as_many_clients_are_shown_as_fit(view: View) -> None:
    many = [{**view.document["sessions"][0], "name": f"worker-{place}"} for place in range(50)]
    view.document = {**view.document, "sessions": many}
    shown = frame(view, lines=30)

    assert len(shown.splitlines()) <= 30
    assert "more; see: lmcachectl status" in shown


def test_a_trace_is_as_high_as_its_highest() -> None:
    assert trace([0.0, None, 0.001, 4.0, 8.0], 6) == "   ▁▄█"
    assert trace([], 3) == "   "
    assert trace([0.5, 1.0], 2, full=1.0) == "▄█"
    assert trace([0.0], 2) == "  "


# -- the command ----------------------------------------------------------------------


def test_once_prints_one_frame(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = BusyPage()
    with ScriptedServer(tmp_path, page.answer) as server:
        assert main(["top", "--once", "--interval", "0.1s", "--address", server.address]) == 0

    shown = capsys.readouterr().out
    assert "tokens looked up 20.0 k █" in squeezed(shown)
    assert "\x1b" not in shown


def test_once_without_a_server_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--address", f"ipc://{tmp_path}/s"]) == 1
    assert capsys.readouterr().err.startswith(f"error: no cache server answers at ipc://{tmp_path}/s: there is no ")


class SleptTime:
    """Time that passes while somebody sleeps, however busy the machine is."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_in_a_pipe_each_interval_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = BusyPage()
    monkeypatch.setattr("lmcache_core.cli.top.time", SleptTime())
    with ScriptedServer(tmp_path, page.answer) as server:
        words = ["top", "--interval", "0.125s", "--for", "0.5s", "--address", server.address]
        assert main(words) == 0

    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == [
        *("time", "hits", "looked", "up/s", "retrieved/s", "stored/s", "GB/s", "out", "GB/s", "in"),
        *("calls/s", "refused/s", "memory", "clients"),
    ]
    assert len(lines) == 4
    assert {tuple(line.split()[1:]) for line in lines} == {
        ("75.0", "%", "20.0", "k", "0", "0", "2.00", "0.00", "40", "0", "64.1", "%", "2")
    }
    assert {len(line) for line in lines} == {len(head)}


def test_in_a_pipe_a_server_that_is_gone_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", "0.1s", "--for", "0.5s", "--address", f"ipc://{tmp_path}/s"]) == 0
    assert capsys.readouterr().out.count("NO ANSWER  no cache server answers at") == 1


def on_a_terminal(words: list[str], typed: bytes, term: str = "xterm") -> tuple[int, bytes]:
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": term, "COLUMNS": "100", "LINES": "40"},
        start_new_session=True,
    )
    os.close(theirs)
    shown, until_s, sent = b"", time.monotonic() + 60, False
    while time.monotonic() < until_s and select.select([mine], [], [], 30)[0]:
        try:
            shown += os.read(mine, 65536)
        except OSError:  # the other side has ended
            break
        if not sent and shown.count(b"looked up") >= 2:
            os.write(mine, typed)
            sent = True
    os.close(mine)
    return process.wait(10), shown


@pytest.mark.parametrize("typed", [b"q", b"Q", b"\x1b"])
def test_on_a_terminal_the_view_renews_itself_until_a_key_ends_it(tmp_path: Path, typed: bytes) -> None:
    page = BusyPage()
    with ScriptedServer(tmp_path, page.answer) as server:
        code, shown = on_a_terminal(["top", "--interval", "0.2s", "--address", server.address], typed)

    assert code == 0
    assert shown.startswith(b"\x1b[?1049h")
    assert b"\x1b[?1049l" in shown


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    page = BusyPage()
    with ScriptedServer(tmp_path, page.answer) as server:
        words = ["top", "--interval", "0.1s", "--for", "2s", "--address", server.address]
        code, shown = on_a_terminal(words, b"", "dumb")

    assert code == 0
    assert shown.startswith(b"time ")
    assert b"\x1b[?1049h" not in shown
