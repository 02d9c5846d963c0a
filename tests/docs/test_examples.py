"""What the pages show, works: each Python block runs, each configuration loads, each command does what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

from lmcache_core import ConfigError
from lmcache_core.loading import load

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "examples/configs").glob("*.toml"))
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)|<img[^>]*src=\"(?P<picture>[^\"]+)\"")
ELLIPSIS = "..."


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and no setting of the user's."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LMCACHE_") or name == "DO_NOT_TRACK"]:
        monkeypatch.delenv(name)


def test_python_blocks_run(python_block: Any, tmp_path: Path) -> None:
    if python_block.config:
        (tmp_path / "lmcache.toml").write_text(_in_folder(python_block.config, tmp_path))
    padding = "\n" * python_block.line  # a traceback then shows the page's own line
    code = compile(padding + python_block.text, ROOT / python_block.page, "exec")
    exec(code, {"__name__": "__main__"})


def test_toml_blocks_load(toml_block: Any, tmp_path: Path) -> None:
    tomli.loads(toml_block.text)
    if toml_block.is_project:
        return
    file = tmp_path / "page.toml"
    file.write_text(toml_block.text)
    if toml_block.note == "wrong":
        with pytest.raises(ConfigError):
            load(config_file=file, environ={})
    else:
        assert load(config_file=file, environ={}).configuration.warnings == ()


def test_lmcachectl_commands_do_what_they_say(console_block: Any, tmp_path: Path) -> None:
    (tmp_path / "lmcache.toml").write_text(console_block.config)
    output, code = "", 0
    for line in console_block.text.splitlines():
        if line.startswith("$ echo $?"):
            output = str(code)
        elif line.startswith("$ lmcachectl "):
            done = run(shlex.split(line[len("$ lmcachectl ") :], comments=True), tmp_path)
            output, code = done.stdout + done.stderr, done.returncode
        elif line.startswith("$ "):
            output = ELLIPSIS  # another program's; its output is not checked
        elif output != ELLIPSIS and ELLIPSIS not in line:
            assert squeeze(line) in squeeze(output)
    assert code in (0, 2), output


@pytest.mark.parametrize("config", [*CONFIGS, ROOT / "examples/demo/lmcache.toml"], ids=lambda path: path.name)
def test_example_configurations_load(config: Path) -> None:
    assert load(config_file=config, environ={}).configuration.warnings == ()


def test_the_readme_names_the_folder_of_example_configurations() -> None:
    assert len(CONFIGS) > 4
    assert "](examples/configs)" in (ROOT / "README.md").read_text()


def test_links_lead_somewhere(page: Path) -> None:
    targets = [match["target"] or match["picture"] for match in LINK.finditer(page.read_text())]
    local = [target.split("#")[0] for target in targets if "://" not in target and not target.startswith("#")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lmcachectl")), *arguments]
    environment = {**os.environ, "COLUMNS": "120", "HOME": str(folder)}  # not the user's own state
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def squeeze(text: str) -> str:
    return " ".join(text.split())


def _in_folder(config: str, folder: Path) -> str:
    """Point the page's absolute folders into the test's."""
    return config.replace("file:///", f"file://{folder}/").replace("disk:///", f"disk://{folder}/")
