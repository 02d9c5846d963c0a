"""A report over HTTP to a whole cache: from the configuration to the gate."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmcache_core import CacheManager, ConfigError, HealthReport, HealthState, KVLayout

TOKEN = "correct horse battery"
CONFIG = f"""
chunk_size = 4
max_local_cpu_size = 0.001
remote_url = "file://{{folder}}/kv"
internal_api_server_enabled = true
internal_api_server_port_start = 0
internal_api_server_token = "{TOKEN}"

[[extra_config.push.checks]]
name = "gpu-errors"
ttl_s = 0.4

[[extra_config.push.checks]]
name = "mount"
ttl_s = 3600.0
policy = "local_cpu"
backend = "RemoteBackend"
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheManager]:
    (tmp_path / "kv").mkdir()
    file = tmp_path / "lmcache.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
    with CacheManager.from_config(file, environ={}, layout=layout, model_name="m") as made:
        yield made


def post(cache: CacheManager, name: str, token: str = TOKEN, **report: object) -> Any:
    assert cache.http is not None
    request = urllib.request.Request(
        f"{cache.http.address}/health/checks/{name}/report",
        json.dumps(report).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def await_state(cache: CacheManager, name: str, state: HealthState) -> HealthReport:
    """The monitor looks at least once a second."""
    patience = threading.Event()
    for _ in range(400):
        found = cache.health.report()
        if any(check.name == name and check.state is state for check in found.checks):
            return found
        patience.wait(0.025)
    raise AssertionError(cache.health.report())


def test_a_failing_report_closes_the_gate_and_a_passing_one_opens_it(cache: CacheManager) -> None:
    post(cache, "mount", healthy=True)
    answer = post(cache, "gpu-errors", healthy=False, reason="3 uncorrectable errors")
    await_state(cache, "gpu-errors", HealthState.DOWN)
    closed = cache.is_healthy()
    post(cache, "gpu-errors", healthy=True)
    await_state(cache, "gpu-errors", HealthState.UP)

    assert answer == {"check": "gpu-errors", "healthy": False, "valid_s": 0.4}
    assert [closed, cache.is_healthy()] == [False, True]


def test_a_report_that_nobody_renews_runs_out(cache: CacheManager) -> None:
    post(cache, "gpu-errors", healthy=True)
    await_state(cache, "gpu-errors", HealthState.UP)
    found = await_state(cache, "gpu-errors", HealthState.DOWN)
    (reason,) = (check.reason for check in found.checks if check.name == "gpu-errors")

    assert reason.startswith("the last report (healthy) is ")
    assert reason.endswith(" s old and held for 0.4 s; is its sender alive?")


def test_a_report_for_one_store_leaves_that_store_out_and_the_cache_serves(cache: CacheManager) -> None:
    post(cache, "mount", healthy=False, reason="the mount is stale")
    await_state(cache, "mount", HealthState.DOWN)

    assert cache.storage.bypassed() == {"RemoteBackend": ("check:mount",)}


def test_a_wrong_token_changes_nothing(cache: CacheManager) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(cache, "mount", token="wrong", healthy=False, reason="x")

    assert caught.value.code == 401
    caught.value.close()
    assert cache.storage.bypassed() == {}


def test_a_policy_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "lmcache.toml"
    file.write_text('[[extra_config.push.checks]]\nname = "a"\nttl_s = 1.0\npolicy = "local-cpu"\n')
    layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
    with pytest.raises(ConfigError) as caught:
        CacheManager.from_config(file, environ={}, layout=layout, model_name="m")

    assert "fallback policy 'local-cpu' is not known; did you mean 'local_cpu'" in str(caught.value)
