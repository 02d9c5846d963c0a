"""A class of checks that hangs while it makes them costs its time, not the start."""

import itertools
import re
from collections.abc import Iterator

import pytest
from tests.memory_store import Options
from tests.stalled_plugins import LIMIT_S, PLACE, WAY_OUT, StalledPlugins

from lmcache_core import HealthCheck, PluginError
from lmcache_core.health.create import create_checks
from lmcache_core.health.hosted import host_checks
from lmcache_core.registry.record import Declared


class View:
    """Shows its health keys and nothing else."""

    health_options = Options()


def create(declared: Declared[type[HealthCheck]], limit_s: float) -> list[HealthCheck]:
    return create_checks(declared, View(), limit_s=limit_s)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "kind"), [("stalls_in_create", "LateCheck"), ("stalls_in_name", "NamelessCheck")])
def test_one_that_hangs_is_named_with_its_place(name: str, kind: str, stalls: StalledPlugins) -> None:
    (declared,) = [one for one in stalls.load(name).registry.health_checks() if one.plugin == name]

    with pytest.raises(PluginError) as caught:
        create(declared, LIMIT_S)

    reason = rf"{kind}\.create is still running after {LIMIT_S:g} s {PLACE}; {WAY_OUT}"
    assert re.fullmatch(reason, caught.value.reason)


def test_one_that_answers_in_time_is_used(stalls: StalledPlugins) -> None:
    stalls.let_go()
    (declared,) = [
        one for one in stalls.load("stalls_in_name").registry.health_checks() if one.plugin == "stalls_in_name"
    ]

    assert [check.name() for check in create(declared, 60)] == ["nameless"]


def test_one_whose_name_raises_is_still_made(stalls: StalledPlugins) -> None:
    """Who uses it says what is wrong with it."""

    class Unnamed(stalls.module.LateCheck):  # type: ignore[misc, name-defined]
        def name(self) -> str:
            raise RuntimeError("no name")

        @classmethod
        def create(cls, manager: object) -> list[HealthCheck]:
            return [cls()]

    assert len(create(Declared("acme", "acme 1.0", Unnamed), 60)) == 1


def test_one_that_gives_nothing_to_iterate_over_is_the_plugins_fault(stalls: StalledPlugins) -> None:
    class Nothing(stalls.module.LateCheck):  # type: ignore[misc, name-defined]
        @classmethod
        def create(cls, manager: object) -> None:
            return None

    with pytest.raises(PluginError, match=r"Nothing\.create raised TypeError: "):
        create(Declared("acme", "acme 1.0", Nothing), 60)


def test_one_that_never_ends_is_stopped_before_it_takes_the_memory(stalls: StalledPlugins) -> None:
    made: list[object] = []

    class Endless(stalls.module.LateCheck):  # type: ignore[misc, name-defined]
        @classmethod
        def create(cls, manager: object) -> Iterator[HealthCheck]:
            for _ in itertools.count():
                made.append(cls())
                assert len(made) < 20_000
                yield made[-1]

    with pytest.raises(PluginError) as caught:
        create(Declared("acme", "acme 1.0", Endless), 60)

    assert str(caught.value) == (
        "plugin 'acme' (acme 1.0): Endless.create gave more than 10000 checks; it seems never to end"
    )


def test_a_host_goes_on_without_one_that_hangs(stalls: StalledPlugins) -> None:
    loaded = stalls.load("stalls_in_create")
    mine = [one for one in loaded.registry.health_checks() if one.plugin == "stalls_in_create"]
    checks, left_out = host_checks(mine, View(), options=Options(), tables=(), limit_s=LIMIT_S)  # type: ignore[arg-type]

    assert checks == []
    assert left_out["LateCheck"].startswith(
        f"plugin 'stalls_in_create' (acme-stalls 1.0): LateCheck.create is still running after {LIMIT_S:g} s "
    )
