import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.core.cli.running import running_cache

from lmcache_core import CacheManager
from lmcache_core.cli.cache_page import CachePage
from lmcache_core.cli.main import main
from lmcache_core.cli.screen import draw
from lmcache_core.cli.watch import Lines
from lmcache_core.cli.watcher import Watcher


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheManager]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with running_cache(tmp_path) as cache:
        yield cache


def watcher(cache: CacheManager) -> Watcher:
    assert cache.http is not None
    return Watcher(CachePage(str(cache.http.address)), Clock())


def frame(one: Watcher, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(draw(one))
    return console.file.getvalue()  # type: ignore[attr-defined]


def override(cache: CacheManager) -> None:
    cache.overrides.add("RemoteBackend", owner="alice", reason="kernel update", ttl_s=600)


# -- plain lines ----------------------------------------------------------------------


def test_the_first_line_is_the_verdict_and_then_each_change_is_one(cache: CacheManager) -> None:
    lines = Lines(watcher(cache))
    first, second = lines.news(), lines.news()
    override(cache)
    third = lines.news()

    assert len(first) == 1
    assert re.search(r"  UP for \d\.\d s, says http://127\.0\.0\.1:\d+$", first[0])
    assert second == []
    assert any(
        line.endswith("override RemoteBackend  added: reads and writes, operator:alice: kernel update")
        for line in third
    )


def test_a_cache_that_goes_away_is_said_once_and_its_return_too(cache: CacheManager) -> None:
    one = watcher(cache)
    lines = Lines(one)
    lines.news()
    page, one._cache = one._cache, CachePage("http://127.0.0.1:1")
    gone, still_gone = lines.news(), lines.news()
    one._cache = page
    back = lines.news()

    assert len(gone) == 1
    assert "  NO ANSWER  no cache answers at http://127.0.0.1:1/health/why: connection refused; " in gone[0]
    assert still_gone == []
    assert "  UP for " in back[0]


def test_in_a_pipe_the_command_prints_lines_and_ends(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache.http is not None
    code = main(["health", "watch", "--interval", "0.01s", "--for", "0.05s", "--url", str(cache.http.address)])
    printed = capsys.readouterr().out

    assert code == 0
    assert "  UP for " in printed
    assert "\x1b" not in printed


# -- the live view --------------------------------------------------------------------


def test_a_frame_shows_verdict_stores_and_changes(cache: CacheManager) -> None:
    override(cache)
    one = watcher(cache)
    one.ask()
    shown = frame(one)

    assert "◐ DEGRADED for " in shown
    assert re.search(r"RemoteBackend +‖ maintenance +nothing +operator:alice: leaves out", shown)
    assert "expires in 9 min" in shown
    assert "reason: kernel update" in shown
    assert "what changed" in shown


def test_times_move_on_between_two_answers(cache: CacheManager) -> None:
    one = watcher(cache)
    one.ask()
    one._clock.now_s += 30.0  # type: ignore[attr-defined]

    assert re.search(r"UP for 30 s|UP for 31 s", frame(one))
    assert "updated 30 s ago" in frame(one)


def test_a_cache_that_does_not_answer_never_looks_well(cache: CacheManager) -> None:
    one = watcher(cache)
    one.ask()
    one._cache = CachePage("http://127.0.0.1:1")
    one.ask()
    one._clock.now_s += 30.0  # type: ignore[attr-defined]
    shown = frame(one)

    assert "○ NO answer for 30 s; below is what it said last" in shown
    assert "UP for" not in shown


def test_before_the_first_answer_it_says_why_there_is_none() -> None:
    one = Watcher(CachePage("http://127.0.0.1:1"))
    one.ask()

    assert "connection refused" in frame(one)


def test_what_came_over_the_wire_is_neither_markup_nor_control(cache: CacheManager) -> None:
    one = watcher(cache)
    one.ask()
    why: dict[str, Any] = dict(one.seen.why)
    why["reason"] = "[bold red]x[/] \x1b[2J"
    why["explanations"] = [{"name": "[link=x]", "state": "up", "traffic": "\x07", "grounds": [{"subject": "[/]"}]}]
    one.seen = type(one.seen)(one.seen.answered_s, why, ({"kind": "[b]", "after": "\x1b", "reason": "[/x]"},))
    shown = frame(one)

    assert "[bold red]x[/] ?[2J" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_frame_fits_its_terminal(cache: CacheManager, width: int) -> None:
    override(cache)
    one = watcher(cache)
    one.ask()

    assert max(map(len, frame(one, width).splitlines())) <= width


def test_on_a_terminal_the_view_renews_itself(cache: CacheManager) -> None:
    assert cache.http is not None
    words = ["health", "watch", "--interval", "0.1s", "--for", "1.5s", "--url", str(cache.http.address)]
    script = "import sys; from lmcache_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *words]
    mine, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s and select.select([mine], [], [], 30)[0]:
        try:
            part = os.read(mine, 65536)
        except OSError:  # the other side has ended
            break
        shown += part
    os.close(mine)

    assert process.wait(10) == 0
    assert shown.startswith(b"\x1b[?1049h")
    assert b"UP" in shown
    assert shown.count(b"updated") > 1
