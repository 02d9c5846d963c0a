import pytest

from lmcache_plugins.upstream.configured import read_configuration
from lmcache_plugins.upstream.health_keys import HealthKeys


@pytest.fixture
def ours(tmp_path, monkeypatch) -> object:
    monkeypatch.chdir(tmp_path)
    return read_configuration({}).configuration.values.extra_config


def test_what_lmcache_sets_wins(ours) -> None:
    keys = HealthKeys.of({"ping_interval": 2, "ping_timeout": 0.5, "fallback_policy": "local_cpu"}, ours)

    assert (keys.ping_interval, keys.ping_timeout, keys.fallback_policy) == (2, 0.5, "local_cpu")


def test_what_lmcache_leaves_open_is_ours(ours) -> None:
    keys = HealthKeys.of({}, ours)

    assert (keys.ping_interval, keys.get_blocking_failed_threshold, keys.waiting_time_for_recovery) == (30, 10, 300)


@pytest.mark.parametrize("nonsense", ["soon", 0, -1, True, None, [1]])
def test_a_value_that_could_not_be_used_is_passed_over(ours, nonsense) -> None:
    assert HealthKeys.of({"ping_interval": nonsense, "fallback_policy": nonsense}, ours).ping_interval == 30.0


@pytest.mark.parametrize("absent", [None, "", []])
def test_no_table_is_an_empty_one(ours, absent) -> None:
    assert HealthKeys.of(absent, ours) == HealthKeys.of({}, ours)
