"""Single keys of the entries of lists, from the environment."""

from __future__ import annotations

import pytest

FILE = """
[[remotes]]
name = "near"
url = "redis://:pw@near"
[[remotes]]
name = "far-away"
url = "redis://far"
[remotes.extra_config]
ping_timeout = 1.0
"""


def remotes(found) -> list[tuple[str, str]]:
    return [(one.name, str(one.url)) for one in found.values.remotes]


def sources(found) -> dict[str, str]:
    return {row.key: row.source for row in found.rows() if row.key.startswith("remotes")}


def test_entries_can_be_made_of_variables_alone(judge) -> None:
    found = judge(
        None,
        {
            "LMCACHE_REMOTES__0__NAME": "a",
            "LMCACHE_REMOTES__0__URL": "redis://h:1",
            "LMCACHE_REMOTES__1__NAME": "b",
            "LMCACHE_REMOTES__1__URL": "redis://h:2",
        },
    )

    assert remotes(found) == [("a", "redis://h:1"), ("b", "redis://h:2")]


@pytest.mark.parametrize("entry", ["1", "FAR_AWAY"])
def test_only_the_named_key_changes(judge, entry: str) -> None:
    name = f"LMCACHE_REMOTES__{entry}__URL"
    found = judge(FILE, {name: "redis://other"})

    assert remotes(found) == [("near", "redis://near"), ("far-away", "redis://other")]
    assert found.values.remotes[1].extra_config.ping_timeout == 1.0
    assert sources(found)["remotes[1].url"] == f"env {name}"
    assert sources(found)["remotes[1].name"] == "lmcache.toml:6"
    assert sources(found)["remotes[0].url"] == "lmcache.toml:4"


def test_a_key_of_the_entrys_own_table(judge) -> None:
    found = judge(FILE, {"LMCACHE_REMOTES__0__EXTRA_CONFIG__PING_TIMEOUT": "2.5"})

    assert [one.extra_config.ping_timeout for one in found.values.remotes] == [2.5, 1.0]


def test_a_single_key_wins_over_the_lists_json(judge) -> None:
    environ = {
        "LMCACHE_REMOTES": '[{"name": "a", "url": "redis://json"}]',
        "LMCACHE_REMOTES__A__URL": "redis://leaf",
    }

    assert remotes(judge(FILE, environ)) == [("a", "redis://leaf")]


def test_the_command_line_replaces_the_whole_list(judge) -> None:
    found = judge(FILE, {"LMCACHE_REMOTES__0__URL": "redis://e"}, remotes=[{"name": "c", "url": "redis://c"}])

    assert remotes(found) == [("c", "redis://c")]
    assert sources(found)["remotes[0].url"] == "command line"


def test_lists_within_tables_and_tenants_go_the_same_way(judge) -> None:
    found = judge(
        None,
        {
            "LMCACHE_EXTRA_CONFIG__CHECKS__0__MATCH": "Thread*",
            "LMCACHE_TENANTS__0__NAME": "acme",
            "LMCACHE_TENANTS__0__SALT": "hunter2-hunter2",
        },
    )

    assert [one.match for one in found.values.extra_config.checks] == ["Thread*"]
    assert [one.name for one in found.values.tenants] == ["acme"]
    assert "hunter2" not in repr(found.rows())


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("LMCACHE_REMOTES__0__URLL", "x", "unknown variable; did you mean LMCACHE_REMOTES__0__URL?"),
        ("LMCACHE_REMOTES__NEAR__NAM", "x", "unknown variable; did you mean LMCACHE_REMOTES__NEAR__NAME?"),
        (
            "LMCACHE_REMOTES__" + "9" * 5000 + "__URL",
            "x",
            "no entry of remotes has that name; for a new one give number 2",
        ),
        ("LMCACHE_REMOTES__5__URL", "redis://h", "remotes has 2 entries here, so the next one is number 2"),
        (
            "LMCACHE_REMOTES__FARAWAI__URL",
            "redis://h",
            "no entry of remotes has that name; did you mean 'far-away'?; for a new one give number 2",
        ),
        ("LMCACHE_REMOTES__0__EXTRA_CONFIG__PING_TIMEOUT", "soon", "must be a number, got 'soon'"),
    ],
)
def test_wrong_ones_are_refused(problems, name: str, text: str, sentence: str) -> None:
    assert problems(FILE, {name: text}) == [f"{name}: {sentence}"]


def test_a_new_entry_needs_all_that_an_entry_needs(problems) -> None:
    (problem,) = problems(None, {"LMCACHE_REMOTES__0__NAME": "a"})

    assert problem.startswith("LMCACHE_REMOTES__0__NAME: remotes[0].url: ")


def test_a_wrong_address_shows_no_secret(problems) -> None:
    (problem,) = problems(None, {"LMCACHE_REMOTES__0__NAME": "a", "LMCACHE_REMOTES__0__URL": "redis//:hunter2@h"})

    assert problem.startswith("LMCACHE_REMOTES__0__URL: ")
    assert "hunter2" not in problem
