"""One thing that is wrong with the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from lmcache_core.config.origin import KeyPath, Origin, key_text, one_line


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence about one key.

    Attributes:
        origin: Where the key was written.
        path: The key.
        sentence: What is wrong and what to do.
    """

    origin: Origin
    path: KeyPath
    sentence: str

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Sorts a report: file by line, then variables, then the command line."""
        return (*self.origin.order, key_text(self.path))

    def __str__(self) -> str:
        return one_line(f"{self.origin.about(self.path)}: {self.sentence}")
