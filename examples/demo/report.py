"""The demo's tables, and what must be true of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

MEGABYTE = 1e6


@dataclass(frozen=True)
class Row:
    """One answer; `process` says whose, and what it met."""

    process: str
    answer: dict[str, Any]


def answers_table(rows: list[Row]) -> Table:
    """Draw the answers, the first of them as the reference; fits 80 columns."""
    table = Table(title="Time to first token, and tokens taken from the cache", title_justify="left")
    table.add_column("process", no_wrap=True)
    for heading in ("first token", "reused", "prompt", "stored", "loaded"):
        table.add_column(heading, justify="right")
    table.add_column("answer")
    reference = rows[0].answer
    for row in rows:
        made = row.answer
        table.add_row(
            row.process,
            f"{made['first_token_s']:.2f} s",
            str(made["reused_tokens"]),
            str(made["prompt_tokens"]),
            _megabytes(made["stored_bytes"]),
            _megabytes(made["loaded_bytes"]),
            "equal" if made["tokens"] == reference["tokens"] else "DIFFERENT",
        )
    return table


def verdicts_table(verdicts: list[dict[str, Any]]) -> Table:
    """Draw what the health monitor said before, during and after the outage."""
    table = Table(title="Health of process C", title_justify="left")
    table.add_column("at", justify="right")
    table.add_column("store")
    table.add_column("verdict")
    table.add_column("reason", overflow="fold")
    where = {"before": "there", "during": "away", "after": "back"}
    for verdict in verdicts:
        table.add_row(
            f"{verdict['at_s']:.1f} s",
            where[verdict["moment"]],
            verdict["state"].upper(),
            verdict["reason"] or "every check passes",
        )
    return table


def broken_promises(rows: list[Row], verdicts: list[dict[str, Any]]) -> list[str]:
    """Say what the demo did not show; nothing when all went well."""
    plain, filled, warm, outage, back, whole, again = (row.answer for row in rows)
    facts = {
        "the answers differ": all(row.answer["tokens"] == plain["tokens"] for row in rows),
        "process A stored nothing": filled["stored_bytes"] > 0,
        "process A found something in an empty store": filled["reused_tokens"] == 0,
        "process B took nothing from the store": warm["reused_tokens"] > 0 and warm["loaded_bytes"] > 0,
        "process C reused tokens while the store was away": outage["reused_tokens"] == 0,
        "process C took nothing from the store that came back": back["reused_tokens"] > 0,
        "process D kept no more than full chunks": whole["stored_bytes"] > 0,
        "process D computed more than one token of a prompt it knows": again["reused_tokens"]
        == again["prompt_tokens"] - 1,
        "the verdicts are not healthy, unhealthy, healthy": [v["healthy"] for v in verdicts] == [True, False, True],
    }
    return [sentence for sentence, true in facts.items() if not true]


def speed(rows: list[Row]) -> str:
    """Say what the store brought. Slow is no failure: the machine may be busy."""
    empty, warm, again = (rows[number].answer["first_token_s"] for number in (1, 2, 6))
    if warm >= empty:
        return "the first of them not sooner from the store, so this machine must be busy"
    return (
        f"the first of them {empty / warm:.1f} times sooner from the store, "
        f"{empty / again:.0f} times where the whole prompt was kept"
    )


def _megabytes(count: int) -> str:
    return f"{count / MEGABYTE:.1f} MB" if count else "-"
