import pytest
from tests.core.health.tower import MakeTower, SteeredCheck

from lmcache_core import ConfigError, PluginError


def test_two_checks_of_one_name_are_refused(tower: MakeTower) -> None:
    checks = [("ours", "ours 1.0", SteeredCheck("disk")), ("theirs", "theirs 2.0", SteeredCheck("disk"))]
    with pytest.raises(PluginError) as caught:
        tower(checks=checks)

    assert str(caught.value) == (
        "plugin 'theirs' (theirs 2.0): health check 'disk' is already declared by plugin 'ours'; rename or disable one"
    )


def test_a_check_with_a_bad_term_is_refused(tower: MakeTower) -> None:
    with pytest.raises(PluginError) as caught:
        tower(SteeredCheck(interval=-5))

    assert str(caught.value) == (
        "plugin 'acme' (acme-checks 2.0): health check SteeredCheck cannot be used: "
        "ValueError: interval must be a finite number of seconds above 0, got -5"
    )


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_check_without_a_name_is_refused(tower: MakeTower, name: str) -> None:
    with pytest.raises(PluginError) as caught:
        tower(SteeredCheck(name))

    assert str(caught.value) == (
        "plugin 'acme' (acme-checks 2.0): health check SteeredCheck cannot be used: "
        f"ValueError: name() must give a name, got {name!r}"
    )


def test_unknown_policies_are_refused_all_at_once_with_the_nearest_names(tower: MakeTower) -> None:
    """A peer turns an unknown policy into recompute with a warning."""
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck("a", policy="local-cpu"), SteeredCheck("b", policy="xyz"))

    assert caught.value.problems == (
        "health check 'a' (plugin 'acme'): fallback policy 'local-cpu' is not known; did you mean 'local_cpu'",
        "health check 'b' (plugin 'acme'): fallback policy 'xyz' is not known; known: journal, local_cpu, recompute",
    )


def test_local_cpu_without_a_backend_to_bypass_is_refused(tower: MakeTower) -> None:
    """In a peer it is a warning and the check protects nothing."""
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck(policy="local_cpu"))

    assert str(caught.value) == (
        "health check 'steered' (plugin 'acme'): fallback policy 'local_cpu' has no backend to leave out for check "
        "'steered'; use 'recompute', or name one in get_bypass_backend_name"
    )


def test_a_backend_that_is_not_there_is_refused(tower: MakeTower) -> None:
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck(policy="local_cpu", backend="RemoteBackend-O"))

    assert str(caught.value) == (
        "health check 'steered' (plugin 'acme'): backend 'RemoteBackend-O' is not there; did you mean 'RemoteBackend-0'"
    )


def test_tier_0_cannot_be_left_out(tower: MakeTower) -> None:
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck(policy="local_cpu", backend="LocalCPUBackend"))

    assert str(caught.value) == (
        "health check 'steered' (plugin 'acme'): backend 'LocalCPUBackend' is tier 0, which cannot be left out; "
        "use policy 'recompute'"
    )
