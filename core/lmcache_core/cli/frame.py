"""Prints something drawn, once: as wide as the terminal, and wide enough elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
from rich.console import Console, RenderableType

_PIPE_COLUMNS = 160
"""In a pipe nothing is folded that a screen would fold."""


def print_frame(draw: Callable[[int], RenderableType]) -> None:
    """Print what `draw` makes for so many columns; no line has blanks at its end."""
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    with console.capture() as drawn:
        console.print(draw(console.width))
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))
