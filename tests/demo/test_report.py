"""What the demo must have shown, and what it says where it has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples.demo.children import Children, DemoError
from examples.demo.report import Row, answers_table, broken_promises, speed, verdicts_table
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]


def answer(reused: int = 0, stored: int = 0, loaded: int = 0, first_token_s: float = 9.0) -> dict[str, Any]:
    return {
        "prompt_tokens": 700,
        "reused_tokens": reused,
        "stored_bytes": stored,
        "loaded_bytes": loaded,
        "first_token_s": first_token_s,
        "tokens": [1, 2, 3],
    }


@pytest.fixture
def rows() -> list[Row]:
    return [
        Row("no cache", answer()),
        Row("A: empty store", answer(stored=2_000_000)),
        Row("B: warm store", answer(reused=512, loaded=2_000_000, first_token_s=1.0)),
        Row("C: store away", answer()),
        Row("C: store back", answer(reused=512, loaded=2_000_000, first_token_s=1.0)),
        Row("D: whole prompt", answer(reused=512, loaded=2_000_000, stored=1_000_000, first_token_s=1.0)),
        Row("D: asked again", answer(reused=699, first_token_s=0.1)),
    ]


@pytest.fixture
def verdicts() -> list[dict[str, Any]]:
    seen = [("before", True, "up", ""), ("during", False, "down", "the folder is gone"), ("after", True, "up", "")]
    return [
        {"moment": moment, "at_s": 1.0, "healthy": healthy, "state": state, "reason": reason}
        for moment, healthy, state, reason in seen
    ]


def test_a_good_run_breaks_no_promise(rows: list[Row], verdicts: list[dict[str, Any]]) -> None:
    assert broken_promises(rows, verdicts) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((3, "tokens", [1, 2, 4]), "the answers differ"),
        ((1, "stored_bytes", 0), "process A stored nothing"),
        ((1, "reused_tokens", 256), "process A found something in an empty store"),
        ((2, "loaded_bytes", 0), "process B took nothing from the store"),
        ((3, "reused_tokens", 256), "process C reused tokens while the store was away"),
        ((4, "reused_tokens", 0), "process C took nothing from the store that came back"),
        ((5, "stored_bytes", 0), "process D kept no more than full chunks"),
        ((6, "reused_tokens", 512), "process D computed more than one token of a prompt it knows"),
    ],
)
def test_each_broken_promise_has_its_sentence(
    rows: list[Row], verdicts: list[dict[str, Any]], change: tuple[int, str, Any], sentence: str
) -> None:
    row, key, value = change
    rows[row].answer[key] = value
    assert broken_promises(rows, verdicts) == [sentence]


def test_a_verdict_that_missed_the_outage_is_a_broken_promise(rows: list[Row], verdicts: list[dict[str, Any]]) -> None:
    verdicts[1]["healthy"] = True
    assert broken_promises(rows, verdicts) == ["the verdicts are not healthy, unhealthy, healthy"]


def test_tables_show_reuse_and_reason_in_80_columns(rows: list[Row], verdicts: list[dict[str, Any]]) -> None:
    console = Console(width=80, record=True, quiet=False, file=None)
    with console.capture() as capture:
        console.print(answers_table(rows), verdicts_table(verdicts))
    assert " ".join(capture.get().split()).count("equal") == 7
    assert "the folder is gone" in capture.get()


def test_speed_is_the_ratio_of_a_to_the_others(rows: list[Row]) -> None:
    assert speed(rows) == (
        "the first of them 9.0 times sooner from the store, 90 times where the whole prompt was kept"
    )


def test_a_busy_machine_is_no_failure(rows: list[Row], verdicts: list[dict[str, Any]]) -> None:
    rows[2].answer["first_token_s"] = 9.5
    assert broken_promises(rows, verdicts) == []
    assert speed(rows) == "the first of them not sooner from the store, so this machine must be busy"


def test_a_process_that_ends_badly_is_quoted(tmp_path: Path) -> None:
    children = Children(Console(quiet=True), ROOT, tmp_path, {})
    with pytest.raises(DemoError) as caught:
        children.run("broken", "channel_that_is_not_there", "{}")
    assert "process 'broken' ended with 1" in str(caught.value)
    assert "No module named examples.demo.channel_that_is_not_there" in str(caught.value)
