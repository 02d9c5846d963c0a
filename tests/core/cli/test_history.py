import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.cli.running import running_cache

from lmcache_core import CacheManager
from lmcache_core.cli.history import local_time, transition_line
from lmcache_core.cli.main import main

ONE = {
    "at_unix_s": time.time(),
    "kind": "check",
    "name": "disk",
    "before": "up",
    "after": "down",
    "reason": "full",
    "lasted_s": 90.0,
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheManager]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with running_cache(tmp_path, health_history_file=str(tmp_path / "history.jsonl")) as cache:
        yield cache


def at(cache: CacheManager) -> list[str]:
    assert cache.http is not None
    return ["--url", str(cache.http.address)]


def test_a_change_is_a_line() -> None:
    assert re.fullmatch(r"\d\d:\d\d:\d\d  check disk  up -> down after 90 s: full", transition_line(ONE))


def test_the_first_state_of_all_has_none_before() -> None:
    line = transition_line({**ONE, "kind": "system", "name": "", "before": "", "reason": "", "lasted_s": None})

    assert line.endswith("  system  down")


def test_a_change_of_another_day_has_its_date() -> None:
    assert re.fullmatch(r"1970-01-0\d \d\d:\d\d:\d\d", local_time(86_400 * 2))


@pytest.mark.parametrize("value", [None, "x", True, 1e300, float("nan")])
def test_a_time_that_is_none_is_a_dash(value: object) -> None:
    assert local_time(value) == "-"


def test_the_command_prints_what_changed(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["health", "history", *at(cache)])

    assert code == 0
    assert re.search(r"^\d\d:\d\d:\d\d  system  unknown -> up after ", capsys.readouterr().out, re.MULTILINE)


def test_as_json_it_is_one_object_a_line_as_in_the_file(
    cache: CacheManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["health", "history", "--json", *at(cache)])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cache.oversight.history.close()
    written = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]

    assert printed
    assert written[: len(printed)] == printed


def test_of_one_name_and_so_many(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    main(["health", "history", "RemoteBackend", *at(cache)])
    nothing = capsys.readouterr().out
    cache.overrides.add("RemoteBackend", owner="alice", reason="x", ttl_s=60)
    cache.overrides.remove("RemoteBackend", owner="alice")
    main(["health", "history", "RemoteBackend", "--limit", "1", *at(cache)])

    assert nothing == "nothing has changed for 'RemoteBackend'\n"
    assert len(capsys.readouterr().out.splitlines()) == 1
