"""Whatever is written anywhere: a configuration or one clear error, one line for each problem."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.config.conftest import OWNERS

from lmcache_core.config.environment import variable_names
from lmcache_core.config.model import build_model
from lmcache_core.config.toml_text import dump_toml
from lmcache_core.errors import ConfigError

NAMES = variable_names(build_model(OWNERS))
ONE_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
TEXT = st.text(st.characters(blacklist_characters="\0"))  # lone surrogates too, as os.environ has for odd bytes
TOML_TEXT = st.text(st.characters(blacklist_categories=["Cs"]))
KEY = st.one_of(
    TOML_TEXT,
    st.sampled_from(
        [
            "chunk_size", "local_disk", "remote_url", "remotes", "plugins", "required", "extra_config", "database", "dsn",
            "tags", "mooncakestore", "ping_interval", "fallback_policy", "name", "url", "influx", "usage_endpoint", "enable_p2p",
        ]
    ),
)  # fmt: skip
SCALAR = st.one_of(
    TOML_TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.dates(), st.datetimes(), st.times(),
    st.sampled_from(["redis://h", "redis://u:p@h:x", "recompute", "://", "a,b"]),
)  # fmt: skip
VALUE = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEY, inner, max_size=4))
)


def check(judge: Any, *args: Any) -> None:
    said: list[str] = []
    try:
        configuration = judge(*args)
    except ConfigError as error:
        said.extend(error.problems)
    else:
        said += [*configuration.warnings, *configuration.ignored]
        said += [row.value_shown for row in configuration.rows(all=True)]
    assert said
    assert [line for line in said if not line.isprintable()] == []


@given(st.dictionaries(KEY, VALUE, max_size=5))
@ONE_FIXTURE
def test_any_file(judge, tree: dict[str, Any]) -> None:
    check(judge, dump_toml(tree))


@given(st.dictionaries(KEY, VALUE, max_size=5))
@ONE_FIXTURE
def test_any_table_of_a_plugin(judge, tree: dict[str, Any]) -> None:
    check(judge, dump_toml({"extra_config": {"database": tree}}))


@given(st.dictionaries(st.one_of(st.sampled_from(NAMES), TEXT.map("LMCACHE_{}".format)), TEXT, max_size=4))
@ONE_FIXTURE
def test_any_variables(judge, environ: dict[str, str]) -> None:
    check(judge, None, environ)


@given(
    st.sampled_from(["LMCACHE_EXTRA_CONFIG", "LMCACHE_REMOTES", "LMCACHE_PLUGINS", "LMCACHE_EXTRA_CONFIG__DATABASE"]),
    VALUE,
)
@ONE_FIXTURE
def test_any_json(judge, name: str, value: Any) -> None:
    check(judge, None, {name: json.dumps(value, default=str)})


@pytest.mark.parametrize(
    "text",
    [
        "chunk_size = 1" + "0" * 5000,
        "chunk_size = 1" + "0" * 30,
        '"a\\nb" = 1',
        '"\\u001b[31m" = 1',
        "a." * 300 + "b = 1",
        "lmcache_instance_id = 'a\\u0000'",
    ],
)
def test_odd_files(judge, text: str) -> None:
    try:
        tomli.loads(text)
    except (ValueError, RecursionError):
        with pytest.raises(ConfigError):
            judge(text)
    else:
        check(judge, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LMCACHE_CHUNK_SIZE", "1" + "0" * 5000),
        ("LMCACHE_CHUNK_SIZE", "1" + "0" * 30),
        ("LMCACHE_EXTRA_CONFIG", '{"ping_interval": 1' + "0" * 5000 + "}"),
        ("LMCACHE_EXTRA_CONFIG", "[" * 100_000),
        ("LMCACHE_EXTRA_CONFIG__DATABASE__TAGS", "[" * 100_000),
        ("LMCACHE_LMCACHE_INSTANCE_ID", "\udcff"),
        ("LMCACHE_\udcff", "1"),
        ("LMCACHE_REMOTE_URL", "redis://\udcff"),
        ("LMCACHE_A\nB", "1"),
        ("LMCACHE_TRACK_USAGE", "\udcff"),
    ],
)
def test_odd_variables(judge, name: str, text: str) -> None:
    check(judge, None, {name: text})


def test_a_name_with_a_line_break_stays_on_one_line(problems) -> None:
    assert problems(None, {"LMCACHE_A\nB": "1"})[0].startswith("LMCACHE_A\\nB: unknown variable")
    assert problems('"a\\nb" = 1')[0].startswith("lmcache.toml:1: a\\nb: unknown key")
