"""A third party's plugin that raises or hangs while it makes something costs that, and the cache starts and says so."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.core.telemetry.collector import Collector
from tests.engine_calls import until
from tests.stalled_plugins import LAYOUT, LIMIT_S, PLACE, WAY_OUT, StalledPlugins

from lmcache_core import CacheManager, CacheServer, ConfigError, HealthState, PluginError, open_tiers
from lmcache_core.registry.watched import WatchedCall

TOKENS = list(range(16))
FROM = "plugin 'stalls_in_build' (acme-stalls 1.0): "
FAULTS = {
    "raises": "raised RuntimeError: no licence",
    "exits": "raised SystemExit(3); a plugin must not end its host",
    "nothing": "gave an object of type 'NoneType', which is no StorageBackend",
}
LOCAL = {"fallback_policy": "local_cpu"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No lmcache.toml of the checkout is picked up."""
    monkeypatch.chdir(tmp_path)
    return None


def some_kv() -> torch.Tensor:
    return torch.arange(2 * 2 * 16 * 8, dtype=torch.float32).reshape(LAYOUT.kv_shape(16))


def stuck(url: str = "stall://a") -> str:
    return rf"build of {url} is still running after {LIMIT_S:g} s {PLACE}; {WAY_OUT}"


def load_failed(cache: CacheManager, plugin: str) -> float | None:
    return cache.metrics.registry.get_sample_value("lmcache:plugin_load_failed", {"plugin": plugin})


# -- stores --------------------------------------------------------------------------------------------------------


def test_a_store_whose_build_hangs_is_down_and_says_who_and_why(stalls: StalledPlugins) -> None:
    with stalls.manager("stalls_in_build", remote_url="stall://a") as cache:
        report = cache.health.report()

    (check,) = [one for one in report.checks if one.name == "RemoteBackendHealthCheck(stall://a)"]
    assert check.state is HealthState.DOWN
    assert re.fullmatch(re.escape(FROM) + stuck(), check.reason)
    assert cache.init_failed_reason == ""


def test_its_plugin_is_listed_and_counted(stalls: StalledPlugins) -> None:
    with stalls.manager("stalls_in_build", remote_url="stall://a") as cache:
        failed = cache.health.report().plugins_failed

    assert re.fullmatch(stuck(), failed["stalls_in_build"])
    assert load_failed(cache, "stalls_in_build") == 1


def test_it_is_logged_once_with_its_stack(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    stalls.manager("stalls_in_build", remote_url="stall://a")

    (entry,) = [one for one in caplog.records if one.name == "lmcache_core.app.host"]
    assert re.fullmatch(re.escape(FROM) + stuck() + "; the store counts as down", entry.getMessage())
    assert "still running after" in caplog.text.split(entry.getMessage())[1]


def test_policies_answer_for_it_as_for_any_store_that_is_down(stalls: StalledPlugins) -> None:
    with stalls.manager("stalls_in_build", remote_url="stall://a", extra_config=LOCAL) as cache:
        stored, found = cache.engine.store(TOKENS, some_kv()), cache.engine.lookup(TOKENS)

    assert (stored, found, cache.health.report().bypassed != {}) == (16, 16, True)


def test_the_other_stores_serve(stalls: StalledPlugins, tmp_path: Path) -> None:
    remotes = [{"name": "a", "url": "stall://a"}, {"name": "b", "url": f"file://{tmp_path}/kv"}]
    how = {"remotes": remotes, "extra_config": LOCAL}
    with stalls.manager("stalls_in_build", **how) as cache:
        cache.engine.store(TOKENS, some_kv())
    stalls.let_go()
    with stalls.manager("stalls_in_build", limit_s=60, **how) as cache:
        assert cache.engine.lookup(TOKENS) == 16


def test_each_store_of_a_plugin_is_named(stalls: StalledPlugins) -> None:
    remotes = [{"name": "a", "url": "stall://a"}, {"name": "b", "url": "stall://b"}]
    with stalls.manager("stalls_in_build", remotes=remotes) as cache:
        reason = cache.health.report().plugins_failed["stalls_in_build"]

    assert re.fullmatch(f"{stuck('stall://a')}; {stuck('stall://b')}", reason)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_cannot_be_built_is_down_as_well(fault: str, stalls: StalledPlugins) -> None:
    with stalls.manager("stalls_in_build", limit_s=60, remote_url=f"stall://{fault}") as cache:
        report = cache.health.report()

    assert report.plugins_failed == {"stalls_in_build": f"build of stall://{fault} {FAULTS[fault]}"}
    assert f"{FROM}build of stall://{fault} {FAULTS[fault]}" in report.reason


@pytest.mark.parametrize("fault", ["hangs", *FAULTS])
def test_a_required_plugin_stops_the_start(fault: str, stalls: StalledPlugins) -> None:
    limit_s = LIMIT_S if fault == "hangs" else 60
    with pytest.raises(PluginError) as caught:
        stalls.manager("stalls_in_build", required=True, limit_s=limit_s, remote_url=f"stall://{fault}")

    assert caught.value.reason.startswith(f"build of stall://{fault} ")


def test_a_store_that_is_built_too_late_is_closed(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    cache = stalls.manager("stalls_in_build", remote_url="stall://a")
    stalls.let_go()

    assert stalls.module.CLOSED.is_set()
    assert caplog.messages[-1] == (
        f"{FROM}build of stall://a has returned after all, too late, so what it made is closed again; {WAY_OUT}"
    )
    assert "stalls_in_build" in cache.health.report().plugins_failed


def test_one_that_raises_too_late_is_logged(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    stalls.manager("stalls_in_build", remote_url="stall://raises-late")
    stalls.let_go()

    assert caplog.messages[-1] == (
        f"{FROM}build of stall://raises-late has ended after all, too late, with RuntimeError: no licence"
    )


def test_one_that_is_built_in_time_is_used(stalls: StalledPlugins) -> None:
    stalls.let_go()
    with stalls.manager("stalls_in_build", limit_s=60, remote_url="stall://a") as cache:
        assert (cache.health.report().plugins_failed, load_failed(cache, "stalls_in_build")) == ({}, None)


def test_an_address_that_a_store_refuses_is_still_the_users_fault(stalls: StalledPlugins) -> None:
    with pytest.raises(ConfigError, match="names no folder"):
        stalls.manager("stalls_in_build", remote_url="file:///")


def test_a_server_starts_and_shows_it(stalls: StalledPlugins, tmp_path: Path) -> None:
    loaded = stalls.load(
        "stalls_in_build", remote_url="stall://a", max_local_cpu_size=0.001, server_address=f"ipc://{tmp_path}/s.sock"
    )
    with CacheServer(loaded) as server:
        status = server.status()

    assert re.fullmatch(stuck(), status["plugins_failed"]["stalls_in_build"])
    assert [tier["name"] for tier in status["tiers"]] == ["LocalCPUBackend", "RemoteBackend"]


def test_another_host_is_told_by_an_error(stalls: StalledPlugins) -> None:
    with pytest.raises(PluginError, match=f"^{re.escape(FROM)}{stuck()}$"):
        open_tiers(stalls.load("stalls_in_build", remote_url="stall://a"))


# -- checks and policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("stalls_in_create", "LateCheck"), ("stalls_in_name", "NamelessCheck")])
def test_checks_that_hang_are_left_out(name: str, kind: str, stalls: StalledPlugins) -> None:
    with stalls.manager(name) as cache:
        report = cache.health.report()

    reason = rf"{kind}\.create is still running after {LIMIT_S:g} s {PLACE}; {WAY_OUT}"
    assert re.fullmatch(reason, report.plugins_failed[name])
    assert (report.healthy, report.state, load_failed(cache, name)) == (True, HealthState.DEGRADED, 1)


def test_a_check_that_hangs_when_it_is_asked_again_is_not_asked_again(stalls: StalledPlugins, tmp_path: Path) -> None:
    how: dict[str, object] = {"remote_url": f"file://{tmp_path}/kv", "internal_api_server_enabled": True}
    how["internal_api_server_port_start"] = 0
    with stalls.manager("stalls_in_name_again", limit_s=60, **how) as cache:
        (check,) = [check for check in cache.health.report().checks if check.name == "forgetful"]

    assert (check.state, check.policy, check.engaged) == (HealthState.DOWN, "bypass", True)
    assert len(stalls.module.ASKED) == 1


def test_checks_of_a_required_plugin_stop_the_start(stalls: StalledPlugins) -> None:
    with pytest.raises(PluginError, match=r"LateCheck\.create is still running after"):
        stalls.manager("stalls_in_create", required=True)


def test_a_policy_that_hangs_is_missed_only_by_who_chose_it(stalls: StalledPlugins) -> None:
    with stalls.manager("stalls_in_policy") as cache:
        report = cache.health.report()

    assert (report.healthy, report.state) == (True, HealthState.DEGRADED)
    assert report.plugins_failed["stalls_in_policy"].startswith("making fallback policy 'late' is still running after")


def test_a_check_that_chose_it_recomputes_and_says_why(stalls: StalledPlugins, tmp_path: Path) -> None:
    how = {"remote_url": f"file://{tmp_path}/no/mount", "extra_config": {"fallback_policy": "late"}}
    with stalls.manager("stalls_in_policy", **how) as cache:
        report = cache.health.report()

    assert (report.healthy, report.state) == (False, HealthState.DOWN)
    assert (
        "fallback policy 'late' failed with PluginError: plugin 'stalls_in_policy' (acme-stalls 1.0): "
        "making fallback policy 'late' is still running after"
    ) in report.reason


# -- asked at the start ----------------------------------------------------------------------------------------------

ASKED = {
    "stalls_in_subscriptions": r"LateSubscriber\.get_subscriptions is still running after .*",
    "stalls_in_subscribers": r"hook lmcache_event_subscribers is still running after .*, so it is left out",
    "stalls_in_specs": r"hook lmcache_metric_specs is still running after .*, so it is left out",
}
"""Plugin to what is wrong with it."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, object]]:
    """Keys with which plugins are asked what they measure."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with Collector() as collector:
        yield {"usage_endpoint": str(collector.url)}


def own_threads() -> set[str]:
    names = {thread.name for thread in threading.enumerate() if not isinstance(thread, WatchedCall)}
    return {name for name in names if name.startswith("lmcache")}


@pytest.mark.parametrize("name", ASKED)
def test_one_that_hangs_when_it_is_asked_is_listed_and_counted(
    name: str, stalls: StalledPlugins, measured: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    with stalls.manager(name, **measured) as cache:
        assert until(lambda: cache.health.report().state is HealthState.DEGRADED), cache.health.report()
        report, lanes = cache.health.report(), [lane.name for lane in cache.bus.lanes()]
    errors = cache.metrics.registry.get_sample_value("lmcache:hook_errors_total", {"plugin": name})

    assert re.fullmatch(ASKED[name], report.plugins_failed[name])
    assert report.healthy
    assert (load_failed(cache, name), errors, name in lanes) == (1, 1, False)
    loud = [one.message for one in caplog.records if one.levelno > logging.INFO]
    assert len([message for message in loud if "is still running after" in message]) == 1


@pytest.mark.parametrize("name", ASKED)
def test_a_required_one_that_hangs_when_it_is_asked_stops_the_start(
    name: str, stalls: StalledPlugins, measured: dict[str, object]
) -> None:
    before = own_threads()
    cache = stalls.manager(name, required=True, **measured)
    with pytest.raises(PluginError, match=f"^plugin '{name}' .*{ASKED[name]}$"):
        cache.start()

    assert until(lambda: own_threads() <= before), own_threads() - before
    cache.stop()


def test_a_server_does_not_start_either(stalls: StalledPlugins, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s.sock"
    how = {"max_local_cpu_size": 0.001, "server_address": address}
    with pytest.raises(PluginError, match=r"LateSubscriber\.get_subscriptions"):
        CacheServer(stalls.load("stalls_in_subscriptions", required=True, **how)).start()
    stalls.let_go()

    with CacheServer(stalls.load("stalls_in_subscriptions", required=True, limit_s=60, **how)) as server:
        assert server.status()["plugins_failed"] == {}


# -- told ------------------------------------------------------------------------------------------------------------


def test_a_listener_that_hangs_does_not_stop_the_monitor(stalls: StalledPlugins, tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    keys = {"ping_interval": 0.05, "ping_timeout": 0.04, "waiting_time_for_recovery": 0.01}
    with stalls.manager("stalls_when_told", limit_s=60, remote_url=f"file://{folder}/kv", extra_config=keys) as cache:
        before = cache.health.get_status()["total_runs"]
        assert until(lambda: cache.health.get_status()["total_runs"] > before + 3)
        assert stalls.module.TOLD != []
