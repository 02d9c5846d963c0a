"""Real worker processes have the plugins of their parent, or somebody hears of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.serve_process import clean_environ

DISTS = Path(__file__).parents[1] / "dists"
FAMILY = Path(__file__).parent / "plugin_family.py"
METHODS = ["spawn", "fork", "forkserver"]


def family(method: str, disabled: str = "") -> tuple[dict, str]:
    path = os.pathsep.join(str(DISTS / name) for name in ("good", "claims"))
    done = subprocess.run(
        [sys.executable, str(FAMILY), method, disabled],
        env=clean_environ({"PYTHONPATH": path}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module", params=METHODS)
def alike(request: pytest.FixtureRequest) -> tuple[dict, str]:
    """A family whose child has all that its parent has."""
    return family(request.param)


def test_a_worker_has_its_parents_plugins(alike: tuple[dict, str]) -> None:
    shown, errors = alike

    assert shown["child"] == shown["parent"]
    assert "good" in shown["parent"]["names"]
    assert shown["connected"]
    assert "plugins" not in errors


def test_nothing_is_registered_twice(alike: tuple[dict, str]) -> None:
    shown, _ = alike

    names, checks = shown["child"]["names"], shown["child"]["checks"]
    assert (len(set(names)), len(set(checks))) == (len(names), len(checks))


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_without_one_of_them_says_so(method: str) -> None:
    shown, errors = family(method, "good")

    own, parents = shown["child"]["digest"], shown["parent"]["digest"]
    assert own != parents
    assert f"has other plugins ({parents}) than this process ({own}): 'good' of acme-good only in the server" in errors
