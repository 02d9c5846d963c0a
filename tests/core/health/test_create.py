"""A class of checks that hangs while it makes them costs its time, not the start."""

import itertools
import re
from collections.abc import Iterator

import pytest
from tests.memory_store import Options
from tests.stalled_plugins import LIMIT_S, PLACE, WAY_OUT, StalledPlugins

from lmcache_core import HealthCheck, PluginError
from lmcache_core.config.checks import CheckTable
from lmcache_core.health.candidate import Candidate, Introduction
from lmcache_core.health.create import create_checks
from lmcache_core.health.hosted import host_checks
from lmcache_core.registry.record import Declared


class View:
    """Shows its health keys and nothing else."""

    health_options = Options()


def create(declared: Declared[type[HealthCheck]], limit_s: float) -> list[Candidate]:
    return create_checks(declared, View(), options=Options(), tables=(), limit_s=limit_s)  # type: ignore[arg-type]


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

    assert [one.said.name for one in create(declared, 60)] == ["nameless"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("error", "why"), [(RuntimeError("no name"), "RuntimeError: no name"), (SystemExit(3), "SystemExit: 3")]
)
def test_one_whose_name_raises_costs_no_sibling(stalls: StalledPlugins, error: BaseException, why: str) -> None:
    class Unnamed(stalls.module.LateCheck):  # type: ignore[misc, name-defined]
        def name(self) -> str:
            raise error

        @classmethod
        def create(cls, manager: object) -> list[HealthCheck]:
            return [cls(), stalls.module.LateCheck()]

    unnamed, late = create(Declared("acme", "acme 1.0", Unnamed), 60)

    assert str(unnamed.said) == f"plugin 'acme' (acme 1.0): health check Unnamed cannot be used: {why}"
    assert isinstance(late.said, Introduction)


def test_what_the_configuration_says_of_one_it_is_not_asked(stalls: StalledPlugins) -> None:
    class Unsure(stalls.module.LateCheck):  # type: ignore[misc, name-defined]
        @property
        def interval(self) -> float:
            raise RuntimeError("no interval")

        @classmethod
        def create(cls, manager: object) -> list[HealthCheck]:
            return [cls()]

    declared, tables = Declared("acme", "acme 1.0", Unsure), [CheckTable(match="late", interval=7.0)]
    (one,) = create_checks(declared, View(), options=Options(), tables=tables, limit_s=60)  # type: ignore[arg-type]

    assert isinstance(one.said, Introduction)
    assert one.said.terms.interval_s == 7.0


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
