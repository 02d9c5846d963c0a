"""A check that cannot be used as it is costs that check; the cache starts without it, and says who and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from tests.stalled_plugins import DISTS, LAYOUT

from lmcache_core import CacheManager, ConfigError, HealthState, PluginError

LEFT_OUT = "the check does not run"
ODD = {
    "odd_name": ("health check NamelessCheck cannot be used: RuntimeError: no licence", LEFT_OUT),
    "odd_interval": (
        (
            "health check HurriedCheck cannot be used: "
            "ValueError: interval must be a finite number of seconds above 0, got -5"
        ),
        LEFT_OUT,
    ),
    "an_odd_twin": (
        "health check 'LocalCPUHealthCheck' is already declared by plugin 'local_cpu_health'; rename or disable one",
        LEFT_OUT,
    ),
    "odd_policy": (
        (
            "health check 'drained': fallback policy 'drain' is not known; "
            "known: bypass, local_cpu, read_only, recompute, write_only"
        ),
        "everything is recomputed while the check fails",
    ),
}
"""Plugin to what is wrong with one of its checks, and what comes of it."""

MakeManager = Callable[..., CacheManager]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MakeManager]:
    """Makes a cache with one of the plugins of ``dists/odd``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(DISTS / "odd"))
    (found,) = distributions(path=[str(DISTS / "odd")])
    made: list[CacheManager] = []

    def make(name: str, *, required: bool = False, **extra: object) -> CacheManager:
        disabled = [entry.name for entry in found.entry_points if entry.name != name]
        plugins = {"disabled": disabled, "required": [name] if required else [], "load_timeout_secs": 60.0}
        overrides = {"chunk_size": 4, "max_local_cpu_size": 0.001, "plugins": plugins, "extra_config": extra}
        made.append(CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m"))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.parametrize("name", ODD)
def test_the_cache_starts_and_lists_it(name: str, manager: MakeManager) -> None:
    with manager(name) as cache:
        report = cache.health.report()

    reason, _ = ODD[name]
    assert (report.healthy, report.state) == (True, HealthState.DEGRADED)
    assert report.plugins_failed == {name: reason}
    assert f"plugin {name!r} failed: {reason}" in report.reason


@pytest.mark.parametrize("name", ODD)
def test_it_is_counted(name: str, manager: MakeManager) -> None:
    metrics = manager(name).metrics

    assert metrics.registry.get_sample_value("lmcache:plugin_load_failed", {"plugin": name}) == 1


@pytest.mark.parametrize("name", ODD)
def test_it_is_logged_once(name: str, manager: MakeManager, caplog: pytest.LogCaptureFixture) -> None:
    manager(name)

    assert [entry.getMessage() for entry in caplog.records if entry.name == "lmcache_core.app.host"] == [
        f"plugin {name!r} (acme-odd 1.0): {'; '.join(ODD[name])}"
    ]


def test_what_it_raised_is_logged_with_its_place(manager: MakeManager, caplog: pytest.LogCaptureFixture) -> None:
    manager("odd_name")

    assert 'raise RuntimeError("no licence")' in caplog.text


@pytest.mark.parametrize("name", ODD)
def test_its_sound_check_runs(name: str, manager: MakeManager) -> None:
    with manager(name) as cache:
        states = {check.name: check.state for check in cache.health.report().checks if check.plugin == name}

    assert states["sound"] is HealthState.UP


def test_a_built_in_check_keeps_its_name(manager: MakeManager) -> None:
    """Though its plugin comes later in the alphabet."""
    with manager("an_odd_twin") as cache:
        (owner,) = [one.plugin for one in cache.health.report().checks if one.name == "LocalCPUHealthCheck"]

    assert owner == "local_cpu_health"


@pytest.mark.parametrize("name", ODD)
def test_one_of_a_required_plugin_stops_the_start(name: str, manager: MakeManager) -> None:
    with pytest.raises(PluginError) as caught:
        manager(name, required=True)

    assert str(caught.value) == f"plugin {name!r} (acme-odd 1.0): {ODD[name][0]}"


def test_an_entry_about_one_that_failed_is_a_warning(manager: MakeManager, caplog: pytest.LogCaptureFixture) -> None:
    with manager("odd_interval", checks=[{"match": "hurr*", "timeout": 3.0}]) as cache:
        healthy = cache.health.is_healthy()

    assert healthy
    assert any(
        entry.startswith("extra_config.checks[0].match: no health check is called 'hurr*'") for entry in caplog.messages
    )


def test_an_entry_may_mend_it(manager: MakeManager) -> None:
    with manager("odd_interval", checks=[{"match": "hurried", "interval": 3.0}]) as cache:
        report = cache.health.report()

    assert report.plugins_failed == {}


def test_a_policy_that_the_configuration_chose_stops_the_start(manager: MakeManager) -> None:
    with pytest.raises(ConfigError, match="has no backend to leave out for check 'sound'"):
        manager("odd_name", checks=[{"match": "sound", "fallback_policy": "local_cpu"}])


def test_what_the_user_calls_a_check_of_a_plugins_stops_the_start(manager: MakeManager) -> None:
    """The name stands in the plugin's own table, so that it is a wrong line of the user's."""
    with pytest.raises(ConfigError) as caught:
        manager("none", push={"checks": [{"name": "LocalCPUHealthCheck", "ttl_s": 5.0}]})

    assert str(caught.value).endswith(
        "health check 'LocalCPUHealthCheck' is already declared by plugin 'local_cpu_health'; rename or disable one"
    )


def test_what_the_user_writes_into_a_plugins_table_stops_the_start(manager: MakeManager) -> None:
    with pytest.raises(ConfigError) as caught:
        manager("none", push={"checks": [{"name": "job", "ttl_s": 5.0, "policy": "local-cpu"}]})

    assert str(caught.value).endswith(
        "health check 'job': fallback policy 'local-cpu' is not known; did you mean 'local_cpu'"
    )
