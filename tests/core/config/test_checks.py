"""Tables ``[[extra_config.checks]]`` and ladders of policies, from every source."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.core.config.conftest import Judge

from lmcache_core.config.checks import CheckTable, fits

Problems = Callable[..., list[str]]

TOML = """
[[extra_config.checks]]
match = "Remote*"
interval = 10.0
fall = 3
enforce = false
depends_on = ["network"]
fallback_policy = ["recompute", "local_cpu"]
"""


def test_a_table_says_what_was_written_only(judge: Judge) -> None:
    (table,) = judge(TOML).values.extra_config.checks

    assert table.match == "Remote*"
    assert dict(table.terms()) == {
        "interval": 10.0,
        "fall": 3,
        "enforce": False,
        "depends_on": ("network",),
        "fallback_policy": ("recompute", "local_cpu"),
    }


def test_the_environment_has_them_as_json(judge: Judge) -> None:
    entries = [{"match": "a", "rise": 2}, {"match": "b", "jitter": 0.0}]
    tables = judge(environ={"LMCACHE_EXTRA_CONFIG__CHECKS": json.dumps(entries)}).values.extra_config.checks

    assert [(table.match, dict(table.terms())) for table in tables] == [("a", {"rise": 2}), ("b", {"jitter": 0.0})]


def test_their_rows_name_the_line(judge: Judge) -> None:
    rows = {row.key: (row.value, row.source) for row in judge(TOML).rows() if ".checks" in row.key}

    assert rows["extra_config.checks[0].fall"] == (3, "lmcache.toml:5")
    assert "extra_config.checks[0].rise" not in rows


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('match = "a"\ninterval = 0.0', "interval: must be greater than 0, got 0.0"),
        ('match = "a"\nrise = 0', "rise: must be 1 or more, got 0"),
        ('match = "a"\njitter = 1.0', "jitter: must be less than 1, got 1.0"),
        ('match = "a"\ninitial_delay = -1.0', "initial_delay: must be 0 or more, got -1.0"),
        ('match = "a"\nenforce = "no"', "enforce: must be true or false, got 'no'"),
        ('match = ""', "match: must have 1 or more characters, got ''"),
        ("fall = 3", "match: is required and missing"),
        ('match = "a"\nintervall = 3.0', "intervall: unknown key; did you mean 'interval'?"),
        (
            'match = "a"\nfallback_policy = "local-cpu"',
            "fallback_policy: 'local-cpu' is no fallback policy of any loaded plugin (known: local_cpu, recompute); did you mean 'local_cpu'?",
        ),
        (
            'match = "a"\ninterval = 5.0\nfast_interval = 6.0',
            "fast_interval: fast_interval (6) must not be more than interval (5)",
        ),
    ],
)
def test_a_wrong_value_is_named(problems: Problems, text: str, sentence: str) -> None:
    (problem,) = problems("[[extra_config.checks]]\n" + text)

    assert problem.partition(": extra_config.checks[0].")[2] == sentence


def test_a_remote_has_none_of_its_own(problems: Problems) -> None:
    text = """
[[remotes]]
name = "a"
url = "redis://a"
[[remotes.extra_config.checks]]
match = "*"
"""

    assert problems(text) == [
        "lmcache.toml:5: remotes[0].extra_config.checks: belongs into the global [extra_config]; name the remote's check in match"
    ]


def test_a_remote_may_inherit_them(judge: Judge) -> None:
    assert judge(TOML + '[[remotes]]\nname = "a"\nurl = "redis://a"\n').values.remotes[0].name == "a"


@pytest.mark.parametrize(
    ("pattern", "name", "fit"),
    [
        ("Remote", "Remote", True),
        ("Remote", "RemoteX", False),
        ("Remote*", "RemoteBackendHealthCheck(redis://[::1]:6379)", True),
        ("*[::1]*", "RemoteBackendHealthCheck(redis://[::1]:6379)", True),
        ("*", "", True),
        ("a*c", "abc\ndc", True),
        ("a.c", "abc", False),
        ("a?c", "abc", False),
    ],
)
def test_only_the_star_stands_for_others(pattern: str, name: str, fit: bool) -> None:
    assert fits(pattern, name) is fit


def test_every_key_is_a_property_of_a_check() -> None:
    from lmcache_core import HealthCheck

    assert [name for name in CheckTable.model_fields if name != "match" and not hasattr(HealthCheck, name)] == []


# -- ladders -------------------------------------------------------------------------------------------------------

LADDERS: list[tuple[Any, Any]] = [
    ("local_cpu", "local_cpu"),
    ("recompute,local_cpu", ("recompute", "local_cpu")),
    ('["recompute", "local_cpu"]', ("recompute", "local_cpu")),
    ('["local_cpu"]', ("local_cpu",)),
]


@pytest.mark.parametrize(("text", "value"), LADDERS)
def test_a_ladder_in_a_variable_is_json_or_a_comma_list(judge: Judge, text: str, value: object) -> None:
    config = judge(environ={"LMCACHE_EXTRA_CONFIG__FALLBACK_POLICY": text}).values

    assert config.extra_config.fallback_policy == value


def test_a_ladder_in_the_file_is_a_list(judge: Judge) -> None:
    config = judge('[extra_config]\nfallback_policy = ["recompute", "local_cpu"]').values

    assert config.extra_config.fallback_policy == ("recompute", "local_cpu")


@pytest.mark.parametrize("value", ["[]", "5", "true", "{}", '["a", 1]', '""'])
def test_what_names_no_policy_is_refused(problems: Problems, value: str) -> None:
    (problem,) = problems(f"[extra_config]\nfallback_policy = {value}")

    assert "fallback_policy" in problem


def test_a_policy_is_named_once(problems: Problems) -> None:
    assert problems('[extra_config]\nfallback_policy = ["recompute", "recompute"]') == [
        "lmcache.toml:2: extra_config.fallback_policy: must name each policy once"
    ]


def test_every_rung_must_be_known(problems: Problems) -> None:
    assert problems('[extra_config]\nfallback_policy = ["recompute", "readonly"]') == [
        "lmcache.toml:2: extra_config.fallback_policy: 'readonly' is no fallback policy of any loaded plugin (known: local_cpu, recompute)"
    ]


def test_local_cpu_anywhere_needs_cpu_memory(problems: Problems) -> None:
    found = problems(TOML + "[extra_config]\nfallback_policy = ['recompute', 'local_cpu']", max_local_cpu_size=0.0)

    assert [problem.partition(": ")[2] for problem in found if "'local_cpu' needs" in problem] == [
        "extra_config.checks[0].fallback_policy: 'local_cpu' needs max_local_cpu_size greater than 0",
        "extra_config.fallback_policy: 'local_cpu' needs max_local_cpu_size greater than 0",
    ]
