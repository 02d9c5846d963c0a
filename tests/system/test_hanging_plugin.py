"""Real processes with plugins installed that do not return for a minute, when they are imported or later."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

DISTS = Path(__file__).parents[1] / "dists"
BUDGET_S = 30.0  # for a whole process on a slow machine; the plugin alone takes 60

START = """
import json, urllib.request
from lmcache_core import CacheManager, KVLayout
layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
with CacheManager.from_config(layout=layout, model_name="m") as manager:
    from prometheus_client import generate_latest
    page = generate_latest(manager.metrics.registry).decode()
    print(json.dumps({"state": manager.health.report().state.value, "failed": manager.health.report().reason,
                      "gauge": [line for line in page.splitlines() if line.startswith("lmcache:plugin_load_failed{")]}))
"""

LATER = """
import json
from lmcache_core import CacheManager, KVLayout
layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
with CacheManager.from_config(layout=layout, model_name="m") as manager:
    report = manager.health.report()
    print(json.dumps({"healthy": report.healthy, "failed": dict(report.plugins_failed),
                      "checks": {check.name: check.reason for check in report.checks}}))
"""
STUCK = "is still running after 3 s (in wait_for_an_answer, acme_valve.py line 9); "
STORE = {
    "folders": ("stalls",),
    "LMCACHE_PLUGINS__LOAD_TIMEOUT_SECS": "3",  # enough to be imported on a slow machine
    "LMCACHE_PLUGINS__DISABLED": "stalls_in_create,stalls_in_name,stalls_in_policy,stalls_in_subscriptions",
    "LMCACHE_REMOTE_URL": "stall://a",
    "LMCACHE_CHUNK_SIZE": "4",
    "LMCACHE_MAX_LOCAL_CPU_SIZE": "0.001",
}


def run(
    *arguments: str, cwd: Path, folders: Sequence[str] = ("hangs", "good", "claims"), **variables: str
) -> tuple[subprocess.CompletedProcess[str], float]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LMCACHE_")}
    path = os.pathsep.join(str(DISTS / name) for name in folders)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**environ, "PYTHONPATH": path, "LMCACHE_PLUGINS__LOAD_TIMEOUT_SECS": "0.3", **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, time.monotonic() - started


def ctl(*arguments: str, cwd: Path, **how: Any) -> tuple[subprocess.CompletedProcess[str], float]:
    code = f"import sys; from lmcache_core.cli.main import main; sys.exit(main({list(arguments)!r}))"
    return run("-c", code, cwd=cwd, **how)


def test_plugins_list_names_it_and_ends(tmp_path) -> None:
    done, took_s = ctl("plugins", "list", "--json", cwd=tmp_path)

    states = {one["name"]: one["state"] for one in json.loads(done.stdout)["plugins"]}
    assert (states["hangs"], states["stuck_two"], states["good"], states["file"]) == (
        "failed",
        "failed",
        "loaded",
        "loaded",
    )
    assert done.returncode == 0
    assert took_s < BUDGET_S


def test_plugins_show_has_the_stack(tmp_path) -> None:
    done, took_s = ctl("--debug", "plugins", "show", "hangs", cwd=tmp_path)

    assert 'acme_hangs.py", line 7, in <module>' in done.stdout
    assert (done.returncode, took_s < BUDGET_S) == (3, True)


def test_disabling_it_makes_it_harmless(tmp_path) -> None:
    names = "hangs,hangs_in_hook,hangs_in_specs,stuck_one,stuck_two"
    done, took_s = ctl(
        "plugins",
        "list",
        "--json",
        cwd=tmp_path,
        LMCACHE_PLUGINS__DISABLED=names,
        LMCACHE_PLUGINS__LOAD_TIMEOUT_SECS="50",
    )

    states = {one["name"]: one["state"] for one in json.loads(done.stdout)["plugins"]}
    assert states["hangs"] == "disabled"
    assert took_s < BUDGET_S


def test_no_plugins_imports_none_of_it(tmp_path) -> None:
    done, took_s = ctl("plugins", "list", "--no-plugins", cwd=tmp_path, LMCACHE_PLUGINS__LOAD_TIMEOUT_SECS="50")

    assert (done.returncode, took_s < BUDGET_S) == (0, True)


@pytest.mark.timing
def test_a_cache_starts_without_it_and_says_so(tmp_path) -> None:
    done, took_s = run("-c", START, cwd=tmp_path, LMCACHE_CHUNK_SIZE="4", LMCACHE_MAX_LOCAL_CPU_SIZE="0.001")

    told = json.loads(done.stdout)
    assert told["state"] == "degraded"
    assert 'lmcache:plugin_load_failed{plugin="hangs"} 1.0' in told["gauge"]
    assert took_s < BUDGET_S


@pytest.mark.parametrize(("command", "code"), [("serve", 3), ("doctor", 1)])
def test_a_required_one_ends_the_start_with_its_cause(command: str, code: int, tmp_path) -> None:
    done, took_s = ctl(command, cwd=tmp_path, LMCACHE_PLUGINS__REQUIRED="hangs")

    assert "still loading after 0.3 s (in wait_for_an_answer, acme_gate.py line 9); " in done.stdout + done.stderr
    assert done.returncode == code
    assert took_s < BUDGET_S


@pytest.mark.timing
def test_a_cache_starts_and_ends_although_its_store_is_never_built(tmp_path) -> None:
    done, took_s = run("-c", LATER, cwd=tmp_path, **STORE)

    told = json.loads(done.stdout)
    assert told["healthy"] is False
    assert told["failed"]["stalls_in_build"].startswith(f"build of stall://a {STUCK}")
    assert told["checks"]["RemoteBackendHealthCheck(stall://a)"].startswith(
        f"plugin 'stalls_in_build' (acme-stalls 1.0): build of stall://a {STUCK}"
    )
    assert (done.returncode, took_s < BUDGET_S) == (0, True)


def test_a_cache_serves_without_it_where_the_policy_says_so(tmp_path) -> None:
    done, _ = run("-c", LATER, cwd=tmp_path, **STORE, LMCACHE_EXTRA_CONFIG__FALLBACK_POLICY="local_cpu")

    assert json.loads(done.stdout)["healthy"] is True


def test_doctor_names_it_and_ends(tmp_path) -> None:
    done, took_s = ctl("doctor", cwd=tmp_path, **STORE)

    assert f"store RemoteBackend: plugin 'stalls_in_build' (acme-stalls 1.0): build of stall://a {STUCK}" in done.stdout
    assert (done.returncode, took_s < BUDGET_S) == (1, True)


def test_doctor_names_checks_that_are_never_made(tmp_path) -> None:
    names = "stalls_in_build,stalls_in_name,stalls_in_policy,stalls_in_subscriptions"
    how = {**STORE, "LMCACHE_REMOTE_URL": f"file://{tmp_path}/kv", "LMCACHE_PLUGINS__DISABLED": names}
    done, took_s = ctl("doctor", cwd=tmp_path, **how)

    assert f"plugin stalls_in_create: LateCheck.create {STUCK}" in done.stdout
    assert (done.returncode, took_s < BUDGET_S) == (1, True)


def test_a_required_one_that_builds_nothing_ends_the_start_with_its_cause(tmp_path) -> None:
    done, took_s = ctl("serve", cwd=tmp_path, **STORE, LMCACHE_PLUGINS__REQUIRED="stalls_in_build")

    assert f"plugin 'stalls_in_build' (acme-stalls 1.0): build of stall://a {STUCK}" in done.stderr
    assert (done.returncode, took_s < BUDGET_S) == (3, True)
