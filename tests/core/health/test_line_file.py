import json
import os
import stat
import threading
from pathlib import Path

import pytest

from lmcache_core.health.line_file import LineFile, wall_time


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def test_records_are_lines_in_their_order(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "new" / "history.jsonl")
    for n in range(100):
        file.write({"n": n})
    flushed = file.flush(5.0)

    assert flushed
    assert numbers(file.path) == list(range(100))


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "history.jsonl")
    file.write({"n": 1})
    file.flush(5.0)

    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_no_text_can_forge_a_line(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "audit.jsonl")
    file.write({"reason": 'x"}\n{"event":"forged\u2028"}'})
    file.flush(5.0)

    assert len(file.path.read_text().splitlines()) == 1


def test_it_goes_on_where_an_earlier_process_ended(tmp_path: Path) -> None:
    for n in range(2):
        file = LineFile(tmp_path / "history.jsonl")
        file.write({"n": n})
        file.close(5.0)

    assert numbers(tmp_path / "history.jsonl") == [0, 1]


def test_a_big_one_is_moved_aside_and_only_one_old_one_is_kept(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "history.jsonl", most_bytes=50)
    for n in range(50):
        file.write({"n": n})
        file.flush(5.0)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.jsonl", "history.jsonl.1"]
    assert numbers(file.path)[-1] == 49
    assert numbers(file.path)[0] == numbers(tmp_path / "history.jsonl.1")[-1] + 1


def test_one_rotated_from_outside_is_opened_anew(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "history.jsonl")
    file.write({"n": 1})
    file.flush(5.0)
    file.path.rename(tmp_path / "rotated")
    file.write({"n": 2})
    file.flush(5.0)

    assert (numbers(tmp_path / "rotated"), numbers(file.path)) == ([1], [2])


def test_a_disk_that_refuses_is_counted_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[int] = []
    file = LineFile(tmp_path / "folder", lost.append)
    file.path.mkdir()
    for n in range(3):
        file.write({"n": n})
        assert not file.flush(5.0)

    assert sum(lost) == 3
    assert caplog.messages == [f"{file.path} cannot be written: Is a directory; its lines are lost and counted"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    lost: list[int] = []
    target = tmp_path / "target"
    (tmp_path / "history.jsonl").symlink_to(target)
    file = LineFile(tmp_path / "history.jsonl", lost.append)
    file.write({"n": 1})
    file.flush(5.0)

    assert (sum(lost), target.exists()) == (1, False)


def test_a_disk_that_hangs_keeps_nobody_waiting_and_memory_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, entered = threading.Event(), threading.Event()
    real = os.write

    def hang(handle: int, data: bytes) -> int:
        entered.set()
        release.wait(30)
        return real(handle, data)

    monkeypatch.setattr("lmcache_core.health.line_file.os.write", hang)
    lost: list[int] = []
    file = LineFile(tmp_path / "history.jsonl", lost.append, most_waiting=10)
    file.write({"n": 0})
    assert entered.wait(5)
    for n in range(1, 101):
        file.write({"n": n})
    hung = file.flush(0.01)
    release.set()
    file.flush(5.0)

    assert not hung
    assert sum(lost) == 90
    assert numbers(file.path) == list(range(11))


def test_after_the_end_a_record_is_lost_and_counted(tmp_path: Path) -> None:
    lost: list[int] = []
    file = LineFile(tmp_path / "history.jsonl", lost.append)
    file.close()
    file.write({"n": 1})

    assert lost == [1]


def test_times_are_utc_to_the_millisecond() -> None:
    assert wall_time(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"
