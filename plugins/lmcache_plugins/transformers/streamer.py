"""A streamer for a call that may be made a second time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class TwoRunStreamer:
    """Passes on what `generate` streams, but in a second run not the prompt, which the first has streamed already.

    Args:
        streamer: The caller's.
    """

    def __init__(self, streamer: Any) -> None:
        self._streamer = streamer
        self._is_broken = False
        self._prompt_was_heard = False
        self._skips_next = False

    def put(self, value: Any) -> None:
        """Take tokens; the first are the prompt's."""
        if self._skips_next:
            self._skips_next = False
            return
        self._is_broken = True
        self._streamer.put(value)
        self._is_broken = False
        self._prompt_was_heard = True

    def end(self) -> None:
        """End the answer."""
        self._streamer.end()

    def is_ready_for_second_run(self) -> bool:
        """Make ready; False where it was the caller's streamer that raised."""
        self._skips_next = self._prompt_was_heard
        return not self._is_broken


def heard_once(
    args: Sequence[Any], options: Mapping[str, Any], streamer: Any
) -> tuple[tuple[Any, ...], dict[str, Any], TwoRunStreamer | None]:
    """Put a `TwoRunStreamer` in the place of a streamer among the arguments of `generate`.

    Args:
        args: Positional arguments.
        options: Named arguments.
        streamer: The caller's, one of both; None for none.
    """
    if streamer is None:
        return tuple(args), dict(options), None
    once = TwoRunStreamer(streamer)
    named = {name: once if value is streamer else value for name, value in options.items()}
    return tuple(once if value is streamer else value for value in args), named, once
