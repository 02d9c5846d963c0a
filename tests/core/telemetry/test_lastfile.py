from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lmcache_core.telemetry.lastfile import read_last, write_last
from lmcache_core.telemetry.outbox import LastResult

RESULT = LastResult(1000.5, "EnvMessage", "http_503")


def test_another_process_can_read_it(tmp_path: Path) -> None:
    write_last(tmp_path / "lmcache", RESULT, "http://h")
    assert read_last(tmp_path / "lmcache") == (RESULT, "http://h")


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    write_last(tmp_path, RESULT, "http://h")
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o600]


def test_the_last_one_stays(tmp_path: Path) -> None:
    write_last(tmp_path, RESULT, "http://h")
    write_last(tmp_path, LastResult(2.0, "EnvMessage", ""), "http://h")
    assert read_last(tmp_path) == (LastResult(2.0, "EnvMessage", ""), "http://h")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at_s": "x"}', "\x00"])
def test_a_damaged_file_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "usage-last.json").write_text(text)
    assert read_last(tmp_path) is None


def test_where_it_cannot_be_written_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_last(tmp_path / "file", RESULT, "http://h")
    write_last(None, RESULT, "http://h")
    assert read_last(tmp_path / "file") is None
    assert read_last(None) is None
