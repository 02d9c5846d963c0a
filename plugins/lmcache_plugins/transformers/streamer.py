"""A streamer for a call that is made a second time."""

from __future__ import annotations

from typing import Any


class SecondRunStreamer:
    """Passes on what `generate` streams, but for the prompt, which the first run has streamed already.

    Args:
        streamer: The caller's.
    """

    def __init__(self, streamer: Any) -> None:
        self._streamer = streamer
        self._prompt_is_next = True

    def put(self, value: Any) -> None:
        """Take tokens; the first are the prompt's."""
        if not self._prompt_is_next:
            self._streamer.put(value)
        self._prompt_is_next = False

    def end(self) -> None:
        """End the answer."""
        self._streamer.end()
