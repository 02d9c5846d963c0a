"""Whether a declared class keeps its contract."""

from typing import ClassVar

import pytest
from pydantic import ConfigDict

from lmcache_core import FallbackPolicy, HealthCheck, MetricSpec, PluginSettings, UsageMessage
from lmcache_core.registry import conform


def table_named(name: object) -> type[PluginSettings]:
    return type(
        "Settings",
        (PluginSettings,),
        {"__module__": __name__, "table": name, "__annotations__": {"table": ClassVar[str]}},
    )


class Check(HealthCheck):
    def name(self):
        return "check"

    def check(self):
        return True

    @classmethod
    def create(cls, manager):
        return []


class Policy(FallbackPolicy):
    name: ClassVar[str] = "policy"
    keeps_serving: ClassVar[bool] = False

    def engage(self, check, storage):
        pass

    def release(self, check, storage):
        pass


def test_good_ones_have_no_objection() -> None:
    assert conform.object_to_table(table_named("my_table_2")) is None
    assert conform.object_to_check(Check) is None
    assert conform.object_to_policy(Policy) is None


@pytest.mark.parametrize("name", ["My", "1st", "a-b", "a__b", "", "a.b", "_a", "a_", "ä", None, 3])
def test_table_name_must_be_lower_case_with_single_underscores(name: object) -> None:
    assert conform.object_to_table(table_named(name)) == (
        f"gave class 'Settings', whose table is {name!r}; set it to lower-case letters, digits and single underscores"
    )


def test_table_without_a_name() -> None:
    class NoTable(PluginSettings):
        pass

    assert conform.object_to_table(NoTable) == (
        "gave class 'NoTable', whose table is None; set it to lower-case letters, digits and single underscores"
    )


def test_core_keys_are_those_of_the_health_options() -> None:
    assert {
        "ping_interval",
        "ping_timeout",
        "get_blocking_failed_threshold",
        "waiting_time_for_recovery",
        "fallback_policy",
        "policy_ladder_secs",
    } == conform.CORE_KEYS


@pytest.mark.parametrize("name", sorted(conform.CORE_KEYS))
def test_core_key_is_no_table(name: str) -> None:
    assert conform.object_to_table(table_named(name)) == (
        f"gave class 'Settings', whose table {name!r} is a key of the core; choose another name"
    )


def test_table_that_lets_unknown_keys_pass() -> None:
    class Loose(PluginSettings):
        model_config = ConfigDict(extra="ignore")
        table = "loose"

    assert conform.object_to_table(Loose) == (
        "gave class 'Loose', which lets unknown keys pass; leave extra='forbid' as PluginSettings has it"
    )


@pytest.mark.parametrize("value", [PluginSettings, int, "Settings", None])
def test_what_is_no_table(value: object) -> None:
    assert conform.object_to_table(value) is not None


def test_async_check_is_refused_because_a_coroutine_is_true() -> None:
    class AsyncCheck(Check):
        async def check(self):
            return False

    assert conform.object_to_check(AsyncCheck) == (
        "gave class 'AsyncCheck', whose check is 'async def'; make it a plain function"
    )


def test_generator_check_is_refused_because_a_generator_is_true() -> None:
    class GeneratorCheck(Check):
        def check(self):
            yield False

    assert conform.object_to_check(GeneratorCheck) == (
        "gave class 'GeneratorCheck', whose check is a generator; return the value instead of yielding it"
    )


def test_async_create_is_refused() -> None:
    class AsyncCreate(Check):
        @classmethod
        async def create(cls, manager):
            return []

    assert conform.object_to_check(AsyncCreate) == (
        "gave class 'AsyncCreate', whose create is 'async def'; make it a plain function"
    )


def test_async_property_is_refused() -> None:
    class AsyncPolicyName(Check):
        @property
        async def fallback_policy(self):
            return "recompute"

    assert conform.object_to_check(AsyncPolicyName) == (
        "gave class 'AsyncPolicyName', whose fallback_policy is 'async def'; make it a plain function"
    )


def test_create_must_be_a_classmethod() -> None:
    class PlainCreate(Check):
        def create(self, manager):
            return []

    assert conform.object_to_check(PlainCreate) == (
        "gave class 'PlainCreate', whose create is no classmethod; write @classmethod above it"
    )


def test_abstract_check_names_what_is_absent() -> None:
    class Unfinished(HealthCheck):
        def name(self):
            return "unfinished"

    assert conform.object_to_check(Unfinished) == "gave class 'Unfinished', which does not implement check, create"


def test_check_instance_is_no_class() -> None:
    assert conform.object_to_check(Check()) == "gave an object of type 'Check', which is no subclass of HealthCheck"


@pytest.mark.parametrize("name", ["Policy", "", "two words", "a-b", None])
def test_policy_name_must_be_lower_case(name: object) -> None:
    named = type("Named", (Policy,), {"name": name})

    assert conform.object_to_policy(named) == (
        f"gave class 'Named', whose name is {name!r}; set it to lower-case letters, digits and underscores"
    )


def test_policy_must_say_whether_it_keeps_serving() -> None:
    vague = type("Vague", (Policy,), {"keeps_serving": None})

    assert conform.object_to_policy(vague) == (
        "gave class 'Vague', which does not say keeps_serving; set it to True or False"
    )


def test_async_engage_is_refused() -> None:
    class AsyncPolicy(Policy):
        async def engage(self, check, storage):
            pass

    assert conform.object_to_policy(AsyncPolicy) == (
        "gave class 'AsyncPolicy', whose engage is 'async def'; make it a plain function"
    )


def test_message_must_be_a_subclass() -> None:
    assert conform.object_to_message(UsageMessage) == "gave UsageMessage itself; give a subclass"


def test_instance_must_be_of_its_contract() -> None:
    assert conform.object_to_instance("x", MetricSpec) == "gave an object of type 'str', which is no MetricSpec"


def test_function_must_be_callable() -> None:
    assert conform.object_to_function(3, "a build") == "gave a build that is not callable"


@pytest.mark.parametrize("answers", [None, "reads", {"reads"}, frozenset(), frozenset({"reeds"})])
def test_a_policy_helps_with_reads_writes_or_both(answers: object) -> None:
    class Odd(FallbackPolicy):
        name = "odd"
        keeps_serving = True

        def engage(self, check: object, storage: object) -> None: ...

        def release(self, check: object, storage: object) -> None: ...

    Odd.answers = answers  # type: ignore[misc, assignment]

    assert (conform.object_to_policy(Odd) or "").endswith(
        f", whose answers is {answers!r}; set it to a frozenset of reads, writes or both"
    )
