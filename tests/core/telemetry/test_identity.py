"""Random numbers, kept in a file that only its owner can read, and made once however many make it."""

from __future__ import annotations

import stat
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lmcache_core.telemetry.identity import config_folder, machine_id, new_session_id, state_folder


def test_it_is_random_and_kept(tmp_path: Path) -> None:
    first = machine_id(tmp_path / "lmcache")

    assert uuid.UUID(first).version == 4
    assert machine_id(tmp_path / "lmcache") == first
    assert machine_id(tmp_path / "other") != first


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    machine_id(tmp_path)
    assert stat.S_IMODE((tmp_path / "machine_id").stat().st_mode) == 0o600


def test_many_that_make_it_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: machine_id(tmp_path), range(64)))

    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["machine_id"]


@pytest.mark.parametrize("content", [b"", b"junk\n", b"\xff\xfe", b"0" * 36])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "machine_id").write_bytes(content)
    assert uuid.UUID(machine_id(tmp_path)).version == 4


def test_where_it_cannot_be_kept_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert machine_id(tmp_path / "file" / "lmcache") == ""
    assert machine_id(None) == ""


def test_a_preview_leaves_the_disk_alone(tmp_path: Path) -> None:
    assert machine_id(tmp_path / "lmcache", create=False) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/me"}, Path("/home/me/.config/lmcache")),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "/etc/me"}, Path("/etc/me/lmcache")),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "relative"}, Path("/home/me/.config/lmcache")),
        ({}, None),
    ],
)
def test_where_it_is(environ: dict[str, str], folder: Path | None) -> None:
    assert config_folder(environ) == folder


def test_where_the_state_is() -> None:
    assert state_folder({"HOME": "/home/me"}) == Path("/home/me/.local/state/lmcache")
    assert state_folder({"HOME": "/home/me", "XDG_STATE_HOME": "/s"}) == Path("/s/lmcache")


def test_each_session_is_another() -> None:
    assert new_session_id() != new_session_id()
