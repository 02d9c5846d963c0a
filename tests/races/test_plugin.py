from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILS = "def test_it(): assert 0"
SLEEPS = """
import sys
def test_it(): assert (sys.gettrace() is not None) is {}
"""


@pytest.fixture
def run_pytest(tmp_path: Path):
    """Run a test file under the plugin, in a process of its own."""

    def run(source: str, *options: str) -> str:
        file = tmp_path / "test_planted.py"
        file.write_text(source)
        command = [sys.executable, "-m", "pytest", "-p", "tests.races.plugin", "-p", "no:cacheprovider"]
        where = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(file)]
        done = subprocess.run([*command, *where, *options], capture_output=True, text=True, cwd=ROOT, check=False)
        return done.stdout

    return run


def test_the_seed_stands_in_the_header_and_beside_what_failed(run_pytest) -> None:
    said = run_pytest(FAILS, "--race-seed", "7", "--race-main", "-n0")

    assert "races: --race-seed 7 --race-main\n" in said
    assert re.search(r"--- races: --race-seed 7 --race-main \S*::test_it -", said)


def test_a_drawn_seed_is_one_for_all_processes(run_pytest) -> None:
    said = run_pytest(FAILS, "-n1")

    assert len(re.findall(r"races: --race-seed \d+", said)) == 2
    assert len(set(re.findall(r"races: --race-seed \d+", said))) == 1


@pytest.mark.parametrize(("options", "held_up"), [((), False), (("--race-main",), True)])
def test_the_main_thread_is_held_up_only_when_told(run_pytest, options, held_up) -> None:
    assert "1 passed" in run_pytest(SLEEPS.format(held_up), "--race-seed", "7", "-n0", *options)
