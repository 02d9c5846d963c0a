"""Starting the demo's processes, and following what they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

SETTINGS = {
    "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads make torch 8 times slower on a machine with other work
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
LABELS = {
    "convert": "unpack the model, once",
    "load": "load the model",
    "read": "read the prompt (tokens)",
    "answer": "write the answer (tokens)",
}
LOG_LINES_SHOWN = 15


class DemoError(Exception):
    """A process of the demo ended badly; the text says what it said last."""


@dataclass
class Told:
    """What one process has told."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)


class Children:
    """Runs one child process after another.

    Args:
        console: Where the progress bars are drawn.
        root: Of the checkout, where ``python -m`` finds this package.
        logs: Folder for what the processes write to their standard error.
        environment: Added to a clean environment: no ``LMCACHE_*`` of the user's gets in.
    """

    def __init__(self, console: Console, root: Path, logs: Path, environment: dict[str, str]) -> None:
        self._console = console
        self._root = root
        self._logs = logs
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
        self._environment = {**kept, **SETTINGS, **environment}

    def run(self, title: str, module: str, argument: str, actions: dict[str, Callable[[], None]] | None = None) -> Told:
        """Run ``python -m module argument`` to its end.

        Args:
            title: Shown before the bars.
            module: Of this package.
            argument: The process's only one.
            actions: What to do when the process says that it is time for it.

        Raises:
            DemoError: It ended badly.
        """
        log = self._logs / f"{title.split(' ', maxsplit=1)[0]}.log"
        command = [sys.executable, "-m", f"examples.demo.{module}", argument]
        with (
            log.open("w") as errors,
            subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self._root,
                env=self._environment,
            ) as child,
        ):
            try:
                told = self._follow(title, child, actions or {})
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            last = "\n".join(log.read_text().splitlines()[-LOG_LINES_SHOWN:])
            raise DemoError(f"process {title!r} ended with {child.returncode}; the end of {log}:\n{last}")
        return told

    def _follow(self, title: str, child: subprocess.Popen[str], actions: dict[str, Callable[[], None]]) -> Told:
        told = Told()
        bars = Bars(title, self._console)
        if child.stdout is None or child.stdin is None:
            raise DemoError(f"process {title!r} has no pipes")
        with bars.progress:
            for line in child.stdout:
                message = json.loads(line)
                kind = message.pop("kind")
                if kind == "progress":
                    bars.show(**message)
                elif kind == "answer":
                    told.answers.append(message)
                elif kind == "verdict":
                    told.verdicts.append(message)
                elif kind == "ready":
                    bars.say(message["moment"])
                    actions[message["moment"]]()
                    child.stdin.write("\n")
                    child.stdin.flush()
        return told


class Bars:
    """One bar a stage, added as the stages come."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._tasks: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        console.print(f"\n[bold]{title}[/bold]")

    def show(self, stage: str, done: int, total: int) -> None:
        """Move a stage's bar; a stage that starts again gets a new one."""
        if stage not in self._tasks or done < self._done[stage]:
            self._tasks[stage] = self.progress.add_task(f"  {LABELS[stage]:<26}", total=total)
        self._done[stage] = done
        self.progress.update(self._tasks[stage], completed=done)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.progress.console.print(f"  -> {text}")
