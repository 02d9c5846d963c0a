"""One scan that no broken distribution can spoil."""

from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from lmcache_core.registry.discover import find_plugins, scan_entry_points

GROUP = "lmcache_core.plugins"


def put_distribution(folder: Path, name: str, entry_points: str) -> None:
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_broken_distribution_does_not_hide_the_others(tmp_path, monkeypatch, caplog) -> None:
    put_distribution(tmp_path, "aaa", "[lmcache_core.plugins]\nthis line has no equals sign\n")
    put_distribution(tmp_path, "bbb", "[lmcache_core.plugins]\nbbb = bbb.hooks\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    assert [entry.name for entry in scan_entry_points()] == ["bbb"]
    assert any("broken metadata" in entry.getMessage() for entry in caplog.records)


def test_first_on_the_path_shadows_a_second_copy(tmp_path, monkeypatch) -> None:
    put_distribution(tmp_path / "one", "same", "[lmcache_core.plugins]\nsame = one\n")
    put_distribution(tmp_path / "two", "same", "[lmcache_core.plugins]\nsame = two\n")
    put_distribution(tmp_path / "two", "broken", "[lmcache_core.plugins]\nthis line has no equals sign\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "one"), str(tmp_path / "two")])

    assert [entry.value for entry in scan_entry_points()] == ["one"]


def test_the_scan_finds_the_built_in_plugins() -> None:
    found = find_plugins(scan_entry_points())

    assert {one.name for one in found if one.builtin} >= {"fallback", "file", "redis", "remote_health"}


def test_other_groups_are_left_out() -> None:
    assert find_plugins([EntryPoint("x", "y", "console_scripts")]) == []


def test_entry_point_without_distribution() -> None:
    (found,) = find_plugins([EntryPoint("x", "y", GROUP)])

    assert (found.origin, found.builtin) == ("unknown distribution", False)


@pytest.mark.filterwarnings("default::DeprecationWarning")  # later Pythons are going to raise for absent metadata
def test_distribution_without_metadata(tmp_path) -> None:
    put_distribution(tmp_path, "nameless", "[lmcache_core.plugins]\nx = y\n")
    (tmp_path / "nameless-1.dist-info" / "METADATA").unlink()
    entries = [entry for one in metadata.distributions(path=[str(tmp_path)]) for entry in one.entry_points]

    assert [found.origin for found in find_plugins(entries)] == ["unknown distribution"]
