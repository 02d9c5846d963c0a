"""A copy stream that copies as late as it may: what is read or overwritten too early is seen to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class LateMark:
    """Runs the copies before it when somebody waits for it."""

    stream: LateStream
    copies: int
    name: str

    def synchronize(self) -> None:
        self.stream.told.append(f"wait {self.name}")
        self.stream.run(self.copies)


@dataclass
class LateStream:
    """Runs queued copies only when it must, and writes down what it was asked."""

    told: list[str] = field(default_factory=list)
    queue: list[Callable[[], object]] = field(default_factory=list)
    done: int = 0
    caller_waits_for: int = 0

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self.told.append(f"pin {list(shape)}")
        return torch.full(shape, 77, dtype=dtype)

    def follow_caller(self) -> None:
        self.told.append("follow")

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> LateMark:
        self.queue.append(lambda: target.copy_(source))
        self.told.append(f"copy {len(self.queue) - 1}")
        return LateMark(self, len(self.queue), str(len(self.queue) - 1))

    def lead_caller(self, mark: LateMark) -> None:
        self.told.append(f"lead {mark.name}")
        self.caller_waits_for = mark.copies

    def run(self, copies: int) -> None:
        """Run the copies up to a place, in order."""
        while self.done < copies:
            self.queue[self.done]()
            self.done += 1

    def reach(self) -> None:
        """What the caller's stream does before its next work."""
        self.run(self.caller_waits_for)
