import os
import stat
from pathlib import Path

import pytest

from lmcache_core.health.state_file import StateFile


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    file = StateFile(tmp_path / "state" / "one.json")
    assert file.open() == ""
    return file


def test_what_was_written_is_read(file: StateFile) -> None:
    file.write({"a": [1, 2.5, "ä"]})

    assert file.read() == {"a": [1, 2.5, "ä"]}


def test_there_is_nothing_at_first(file: StateFile) -> None:
    assert file.read() is None


def test_a_write_that_fails_leaves_the_old_document_and_no_litter(
    file: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write("old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lmcache_core.health.state_file.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write("new")
    monkeypatch.undo()

    assert file.read() == "old"
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["one.json", "one.json.lock"]


def test_only_its_owner_can_read_it(file: StateFile) -> None:
    file.write("secretive")

    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_it_belongs_to_one_instance_at_a_time(file: StateFile) -> None:
    other = StateFile(file.path)
    refused = other.open()
    file.close()
    taken = other.open()

    assert refused == f"{file.path} belongs to another process; give each instance a lmcache_instance_id of its own"
    assert (taken, other.is_open) == ("", True)
    other.close()


def test_a_huge_one_is_set_aside(file: StateFile) -> None:
    file.path.write_bytes(b" " * (2 << 20))
    with pytest.raises(ValueError, match="is no JSON document"):
        file.read()

    assert not file.path.exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert StateFile(tmp_path / "file" / "one.json").open() == (
        f"{tmp_path}/file/one.json cannot be used: {os.strerror(17)}"
    )
