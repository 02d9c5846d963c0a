from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lmcache_plugins.vllm.options import ConnectorOptions
from lmcache_plugins.vllm.records import RequestView, Scheduled
from lmcache_plugins.vllm.scheduler import SchedulerSide
from lmcache_plugins.vllm.tally import Tally

BLOCK_TOKENS, CHUNK_TOKENS = 4, 8


class SlowAnswer:
    """A lookup whose answer the test gives."""

    def __init__(self, tokens: int | None) -> None:
        self.tokens = tokens
        self.cancelled = False

    def done(self) -> bool:
        return self.tokens is not None

    def result(self, timeout_s: float | None = None) -> int:
        return self.tokens or 0

    def cancel(self) -> None:
        self.cancelled = True


class Answers:
    """A cache that finds so many tokens, whatever is asked."""

    chunk_tokens = CHUNK_TOKENS
    save_unfull_chunk = False

    def __init__(self, found: int | None = 0) -> None:
        self.found = found
        self.asked: list[tuple[list[int], str, str, str]] = []
        self.pending: list[SlowAnswer] = []

    def lookup_async(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> SlowAnswer:
        self.asked.append((list(tokens), salt, variant, request_id))
        self.pending.append(SlowAnswer(self.found))
        return self.pending[-1]

    def clear(self) -> list[Any]:
        return []


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Scheduler:
    """A scheduler's side on a cache whose answers the test gives."""

    def __init__(self, found: int | None = 0, **options: Any) -> None:
        self.answers, self.tally, self.clock = Answers(found), Tally(), Clock()
        windows, blocks = options.pop("windows", (0,)), options.pop("blocks", 0)
        self.side = SchedulerSide(
            self.answers,
            block_tokens=BLOCK_TOKENS,
            options=ConnectorOptions(**options),
            tally=self.tally,
            windows=windows,
            blocks=blocks,
            clock=self.clock,
        )

    def match(self, tokens: int = 20, computed: int = 0, **view: Any) -> tuple[int | None, bool]:
        return self.side.match(request(tokens, **view), computed)


def request(tokens: int = 20, **view: Any) -> RequestView:
    return RequestView(**{"request_id": "r", "tokens": list(range(tokens)), "prompt_tokens": tokens, **view})


def step(
    tokens: int, *, computed: int = 0, blocks: Any = (), replaces: bool = False, groups: int = 1
) -> list[Scheduled]:
    """One request's step; it gets the same blocks in each group."""
    return [Scheduled("r", computed, tokens, (blocks,) * groups if blocks else (), replaces)]


class Memory:
    """A cache that keeps the payload blocks' ids only: what was stored and what is asked for."""

    def __init__(self, delivered: int = 0) -> None:
        self.delivered = delivered
        self.stored: list[tuple[list[int], Any, str, str, str]] = []
        self.asked: list[tuple[list[int], Any, str, str, str, int]] = []
        self.released: list[tuple[str, str, str]] = []
        self.skipped: list[int] = []

    def store(
        self, tokens: Any, kv: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> int:
        self.stored.append((list(tokens), kv, salt, variant, request_id))
        self.skipped.append(skip_tokens)
        return len(tokens) - skip_tokens

    def retrieve(
        self, tokens: Any, out: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> Any:
        self.asked.append((list(tokens), out, salt, variant, request_id, skip_tokens))
        return np.arange(len(tokens)) < self.delivered

    def release(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> bool:
        self.released.append((salt, variant, request_id))
        return True


@pytest.fixture
def tally() -> Tally:
    return Tally()
