"""What is read before anything is built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lmcache_core import ConfigError, read_mode


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def file_with(text: str) -> Path:
    path = Path("some.toml")
    path.write_text(text)
    return path


def test_mode_is_in_process_where_nobody_says() -> None:
    assert read_mode(environ={}) == "in_process"


def test_mode_of_the_file() -> None:
    assert read_mode(file_with('mode = "server"'), environ={}) == "server"


def test_mode_of_the_environment_wins() -> None:
    assert read_mode(file_with('mode = "server"'), environ={"LMCACHE_MODE": "in_process"}) == "in_process"


def test_mode_of_an_override_wins() -> None:
    assert read_mode(environ={"LMCACHE_MODE": "in_process"}, overrides={"mode": "server"}) == "server"


def test_a_wrong_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^some\.toml:1: mode: "):
        read_mode(file_with('mode = "sever"'), environ={})


def test_other_faults_are_for_those_who_load() -> None:
    assert read_mode(file_with('mode = "server"\nchunk_sise = 1\n[extra_config.of_a]\nx = 1'), environ={}) == "server"


def test_no_plugin_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name for name in sys.modules if name.startswith("lmcache_plugins")}

    def refuse(**_names: str) -> None:
        raise AssertionError("plugins were looked for")

    monkeypatch.setattr("importlib.metadata.entry_points", refuse)
    read_mode(environ={})

    assert {name for name in sys.modules if name.startswith("lmcache_plugins")} == before
