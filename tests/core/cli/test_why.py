import json
from typing import Any

import pytest

from lmcache_core.cli.why import explain_lines

GROUND: dict[str, Any] = {
    "subject": "breaker",
    "state": "open",
    "since_s": 4.0,
    "evidence": ["opened once, last because 3 calls in a row failed", "failed loads since start: 3"],
    "rule": "opens after 3 failed calls in a row",
    "next": [{"what": "a trial call", "in_s": 1.5}, {"what": "later", "in_s": None}, {"what": "soon", "in_s": 0.0}],
}
ANSWER: dict[str, Any] = {
    "healthy": True,
    "explanations": [
        {"name": "", "url": "", "state": "degraded", "traffic": "serves", "reason": "", "grounds": []},
        {
            "name": "R",
            "url": "memory://0",
            "state": "down",
            "traffic": "nothing",
            "reason": "x",
            "grounds": [GROUND],
        },
    ],
}


def test_each_thing_that_decides_has_evidence_rule_and_next_step() -> None:
    assert list(explain_lines(ANSWER)) == [
        "cache: DEGRADED, serves",
        "",
        "R (memory://0): DOWN, gets nothing",
        "  breaker: open for 4.0 s",
        "    evidence  opened once, last because 3 calls in a row failed",
        "              failed loads since start: 3",
        "    rule      opens after 3 failed calls in a row",
        "    next      a trial call in 1.5 s",
        "              later",
        "              soon now",
    ]


def test_on_a_narrow_terminal_lines_are_wrapped_under_their_label() -> None:
    lines = list(explain_lines({"explanations": [{"name": "R", "grounds": [{**GROUND, "rule": "word " * 20}]}]}, 40))
    rule = [line for line in lines if "word" in line]

    assert len(rule) > 1
    assert max(map(len, lines)) <= 40
    assert all(line.startswith(" " * 14) for line in rule[1:])


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = json.loads(json.dumps(ANSWER).replace("breaker", "\\u001b[2J").replace("trial", "\\u0007"))

    assert all(line.isprintable() for line in explain_lines(text))


@pytest.mark.parametrize("odd", [{}, {"grounds": [{}]}, {"grounds": [{"evidence": [], "next": [{}]}]}])
def test_a_page_of_odd_values_is_shown_as_far_as_it_goes(odd: dict[str, Any]) -> None:
    assert next(explain_lines({"explanations": [odd]})).startswith("cache: ")
