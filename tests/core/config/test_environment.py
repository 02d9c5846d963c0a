"""Every LMCACHE_* variable is claimed or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.config.conftest import OWNERS

from lmcache_core.config.environment import claims, is_service, variable_name, variable_names
from lmcache_core.config.fields import leaf_paths
from lmcache_core.config.model import CoreConfig, build_model

MODEL = build_model(OWNERS)
NAMES = variable_names(MODEL)
Problems = Callable[..., list[str]]


def source(configuration: Any, key: str) -> tuple[object, str]:
    row = next(row for row in configuration.rows() if row.key == key)
    return row.value, row.source


def test_a_variable_wins_over_the_file(judge) -> None:
    found = judge("chunk_size = 64", {"LMCACHE_CHUNK_SIZE": "512"})
    assert source(found, "chunk_size") == (512, "env LMCACHE_CHUNK_SIZE")


def test_the_command_line_wins_over_a_variable(judge) -> None:
    found = judge("chunk_size = 64", {"LMCACHE_CHUNK_SIZE": "512"}, chunk_size=128)
    assert source(found, "chunk_size") == (128, "command line")


def test_one_nested_variable_leaves_its_siblings_alone(judge) -> None:
    found = judge("[extra_config]\nping_interval = 33\nping_timeout = 3", {"LMCACHE_EXTRA_CONFIG__PING_TIMEOUT": "4"})
    assert found.values.extra_config.ping_interval == 33
    assert found.values.extra_config.ping_timeout == 4


def test_json_for_the_whole_table_changes_only_the_leaves_it_has(judge) -> None:
    found = judge(
        "[extra_config]\nping_interval = 33\nping_timeout = 3", {"LMCACHE_EXTRA_CONFIG": '{"ping_timeout": 4}'}
    )
    assert found.values.extra_config.ping_interval == 33
    assert found.values.extra_config.ping_timeout == 4


def test_a_single_leaf_wins_over_json(judge) -> None:
    environ = {
        "LMCACHE_EXTRA_CONFIG": '{"ping_interval": 60, "ping_timeout": 4}',
        "LMCACHE_EXTRA_CONFIG__PING_INTERVAL": "50",
    }
    found = judge(None, environ)
    assert source(found, "extra_config.ping_interval") == (50.0, "env LMCACHE_EXTRA_CONFIG__PING_INTERVAL")
    assert source(found, "extra_config.ping_timeout") == (4.0, "env LMCACHE_EXTRA_CONFIG")


def test_a_plugins_leaf(judge) -> None:
    environ = {"LMCACHE_EXTRA_CONFIG__DATABASE__DSN": "pg://u:p@h/d", "LMCACHE_EXTRA_CONFIG__DATABASE__TIMEOUT_S": "7"}
    table = judge(None, environ).table("database")
    assert table.dsn.get_secret_value() == "pg://u:p@h/d"
    assert table.timeout_s == 7


def test_a_plugins_table_as_json_and_a_leaf_over_it(judge) -> None:
    environ = {
        "LMCACHE_EXTRA_CONFIG__DATABASE": '{"timeout_s": 7, "tags": ["x"]}',
        "LMCACHE_EXTRA_CONFIG__DATABASE__TIMEOUT_S": "8",
    }
    table = judge("[extra_config.database]\nmode = 'safe'", environ).table("database")
    assert (table.timeout_s, table.tags, table.mode) == (8, ("x",), "safe")


def test_remotes_as_json(judge) -> None:
    found = judge(None, {"LMCACHE_REMOTES": '[{"name": "a", "url": "redis://h"}]'})
    assert [remote.name for remote in found.values.remotes] == ["a"]


@pytest.mark.parametrize("text", ["a,b", '["a", "b"]', " a , b "])
def test_a_list_is_json_or_commas(judge, text: str) -> None:
    assert judge(None, {"LMCACHE_PLUGINS__DISABLED": text}).values.plugins.disabled == ("a", "b")


def test_a_list_that_is_neither_says_both(problems: Problems) -> None:
    assert problems(None, {"LMCACHE_PLUGINS__DISABLED": '["a"'}) == [
        'LMCACHE_PLUGINS__DISABLED: must be a list, as JSON such as ["a", "b"] or as a comma list such as a,b, got \'["a"\''
    ]


def test_an_item_of_the_wrong_type_is_named(problems: Problems) -> None:
    assert problems(None, {"LMCACHE_PLUGINS__DISABLED": '["a", 2]'}) == [
        "LMCACHE_PLUGINS__DISABLED: item [1] must be text, got 2"
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("LMCACHE_CHUNK_SIZE", "abc", "must be a whole number, got 'abc'"),
        ("LMCACHE_CHUNK_SIZE", "", "must be a whole number, got ''"),
        ("LMCACHE_CHUNK_SIZE", "0", "must be 1 or more, got '0'"),
        ("LMCACHE_CHUNK_SIZE", "30GB", "must be a whole number, got '30GB'; write it without a unit"),
        ("LMCACHE_LOCAL_CPU", "maybe", "must be true or false, got 'maybe'"),
        ("LMCACHE_MAX_LOCAL_CPU_SIZE", "nan", "must be a finite number, got 'nan'"),
        ("LMCACHE_MAX_LOCAL_CPU_SIZE", "inf", "must be a finite number, got 'inf'"),
        ("LMCACHE_MAX_LOCAL_CPU_SIZE", "-1", "must be 0 or more, got '-1'"),
        ("LMCACHE_LOG_LEVEL", "loud", "must be one of 'CRITICAL', 'ERROR', 'WARNING', 'INFO' or 'DEBUG', got 'loud'"),
        ("LMCACHE_EXTRA_CONFIG", "{", 'must be a table as JSON, such as {"key": 1}; expecting property name enclosed in double quotes at column 2'),
        ("LMCACHE_EXTRA_CONFIG", "3", 'must be a table as JSON, such as {"key": 1}'),
        ("LMCACHE_EXTRA_CONFIG", "null", 'must be a table as JSON, such as {"key": 1}'),
        ("LMCACHE_REMOTES", '{"name": "a"}', 'must be a list of tables as JSON, such as [{"key": 1}]'),
        ("LMCACHE_REMOTE_URL", "redis://u:canary@h:port", "the redis:// address has no valid port (1 to 65535) or host; write scheme://user:password@host:port once, and percent-encode '#', '/', '?', '@', '[' and ']' in a password"),
    ],
)  # fmt: skip
def test_bad_values(problems: Problems, name: str, text: str, message: str) -> None:
    assert problems(None, {name: text}) == [f"{name}: {message}"]


def test_values_within_json_are_typed(problems: Problems) -> None:
    assert problems(None, {"LMCACHE_EXTRA_CONFIG": '{"ping_interval": "30", "pingtimeout": 3}'}) == [
        "LMCACHE_EXTRA_CONFIG: extra_config.ping_interval: must be a number, got '30'",
        "LMCACHE_EXTRA_CONFIG: extra_config.pingtimeout: unknown key; did you mean 'ping_timeout'?",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_variable(name: str) -> None:
    assert claims(MODEL, name)


@pytest.mark.parametrize("name", NAMES)
def test_lower_case_is_refused_with_the_right_name(problems: Problems, name: str) -> None:
    assert problems(None, {name.lower(): "1"})[0].startswith(
        f"{name.lower()}: unknown variable; names are upper case, did you mean {name}?"
    )


@pytest.mark.parametrize("name", [name for name in NAMES if "__" in name])
def test_one_underscore_for_two_is_refused_with_the_right_name(problems: Problems, name: str) -> None:
    swapped = name.replace("__", "_")
    assert problems(None, {swapped: "1"}) == [f"{swapped}: unknown variable; did you mean {name}?"]


@pytest.mark.parametrize("path", [path for path in leaf_paths(MODEL) if "_" in path[-1]])
def test_two_underscores_for_one_are_refused_with_the_right_name(problems: Problems, path: tuple[str, ...]) -> None:
    name = variable_name(path)
    swapped = variable_name(path[:-1]) + ("__" if path[:-1] else "") + path[-1].upper().replace("_", "__", 1)
    found = problems(None, {swapped: "1"})
    assert len(found) == 1
    assert found[0].startswith(f"{swapped}: unknown variable; did you mean {name}?")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_one_edit_is_refused_with_a_known_name(problems: Problems, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    at = data.draw(st.integers(len("LMCACHE_"), len(name) - 1))
    letter = data.draw(st.sampled_from("ABXZ"))
    kind = data.draw(st.sampled_from(["delete", "insert", "replace"]))
    edited = name[:at] + ("" if kind == "delete" else letter) + name[at if kind == "insert" else at + 1 :]
    if edited == "LMCACHE_" or claims(MODEL, edited) or is_service(edited, "1"):
        return
    found = problems(None, {edited: "1"})
    assert len(found) == 1
    assert found[0].startswith(f"{edited}: ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LMCACHE_PORT", "tcp://10.0.0.1:6379"),
        ("LMCACHE_SERVER_PORT", "udp://10.0.0.1:6379"),
        ("LMCACHE_SERVICE_HOST", "10.0.0.1"),
        ("LMCACHE_SERVICE_PORT", "6379"),
        ("LMCACHE_SERVICE_PORT_HTTP", "80"),
        ("LMCACHE_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("LMCACHE_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
        ("LMCACHE_PORT_6379_TCP_PROTO", "tcp"),
        ("LMCACHE_PORT_6379_TCP_PORT", "6379"),
        ("LMCACHE_PORT_6379_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_of_services_are_left_alone_and_reported(judge, name: str, text: str) -> None:
    found = judge(None, {name: text})
    assert found.ignored == (name,)
    assert found.warnings == ()


def test_a_port_that_is_no_services_is_refused(problems: Problems) -> None:
    assert problems(None, {"LMCACHE_PORT": "6379"})[0].startswith("LMCACHE_PORT: unknown variable")


@pytest.mark.parametrize(
    "name", ["LMCACHE_", "LMCACHE__", "LMCACHE___CHUNK_SIZE", "LMCACHE_CHUNK_SIZE__X", "LMCACHE_REMOTES__0"]
)
def test_odd_names_are_refused(problems: Problems, name: str) -> None:
    assert problems(None, {name: "1"})[0].startswith(f"{name}: unknown variable")


@pytest.mark.parametrize("name", ["PATH", "LMCACH_X", "MY_LMCACHE_CHUNK_SIZE", "REDIS_URL", "PYTHONHASHSEED"])
def test_other_programs_variables_are_none_of_our_business(judge, name: str) -> None:
    assert judge(None, {name: "1"}).warnings == ()


def test_the_processs_own_environment_is_not_read(judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMCACHE_CHUNK_SIZE", "7")
    assert judge(None, {}).values.chunk_size == CoreConfig().chunk_size
