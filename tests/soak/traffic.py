"""What one worker does: random requests of an engine, every retrieved byte compared with what it has to be."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tests.soak.content import (
    CHUNK_TOKENS,
    IDENTITIES,
    Identity,
    Model,
    draw_prompt,
    first_wrong_chunk,
    is_untouched,
)

from lmcache_core.contracts.cache import KVCache

T = TypeVar("T")

_CLEARS = 1 / 3000
"""Share of requests after which everything is dropped."""


class WrongByteError(AssertionError):
    """The cache delivered something else than what was stored."""


class Traffic:
    """Requests of one worker against one cache.

    Attributes:
        counts: What was done and found.
        longest_s: The longest call of each kind.
    """

    def __init__(self, cache: KVCache, model: Model, rng: random.Random, name: str) -> None:
        self._cache = cache
        self._model = model
        self._rng = rng
        self._name = name
        self._turn = 0
        self.counts: Counter[str] = Counter()
        self.longest_s: dict[str, float] = {}
        self._kinds: tuple[tuple[int, Callable[[_Request], None]], ...] = (
            (40, self._serve),
            (22, self._serve_async),
            (10, self._serve_rest),
            (8, self._retrieve_unasked),
            (8, self._store_only),
            (5, self._give_up),
            (4, self._cancel),
            (3, self._walk_away),
        )

    def turn(self) -> None:
        """One request. Raises WrongByteError."""
        self._turn += 1
        self.counts["requests"] += 1
        tokens = draw_prompt(self._rng)
        request = _Request(tokens, self._rng.choice(IDENTITIES), f"{self._name}-{self._turn}")
        (kind,) = self._rng.choices([kind for _, kind in self._kinds], [weight for weight, _ in self._kinds])
        kind(request)
        if self._rng.random() < _CLEARS:
            self._timed("clear", self._cache.clear)

    # -- kinds of requests ---------------------------------------------------

    def _serve(self, request: _Request) -> None:
        promised = self._timed("lookup", self._cache.lookup, request.tokens, **request.names)
        self._retrieve(request, promised)
        self._store(request)

    def _serve_async(self, request: _Request) -> None:
        pending = self._timed("lookup_async", self._cache.lookup_async, request.tokens, **request.names)
        while self._rng.random() < 0.8 and not pending.done():
            time.sleep(0.002)
        promised = self._timed("result", pending.result)
        self._retrieve(request, promised)
        self._store(request)

    def _serve_rest(self, request: _Request) -> None:
        """A request whose beginning the engine still has."""
        promised = self._timed("lookup", self._cache.lookup, request.tokens, **request.names)
        self._retrieve(request, promised, skip_tokens=self._rng.randrange(len(request.tokens)))
        self._store(request)

    def _retrieve_unasked(self, request: _Request) -> None:
        request.names.pop("request_id")
        self._retrieve(request, 0)

    def _store_only(self, request: _Request) -> None:
        self._store(request)

    def _give_up(self, request: _Request) -> None:
        promised = self._timed("lookup", self._cache.lookup, request.tokens, **request.names)
        released = self._timed("release", self._cache.release, request.tokens, **request.names)
        self.counts["released"] += released
        self.counts["promises_lost"] += bool(promised) and not released

    def _cancel(self, request: _Request) -> None:
        pending = self._timed("lookup_async", self._cache.lookup_async, request.tokens, **request.names)
        self._timed("cancel", pending.cancel)

    def _walk_away(self, request: _Request) -> None:
        """A lookup that nothing follows: its promise has to run out by itself."""
        self._timed("lookup", self._cache.lookup, request.tokens, **request.names)

    # -- steps ---------------------------------------------------------------

    def _store(self, request: _Request) -> None:
        kv = self._model.kv(request.tokens, request.identity)
        stored = self._timed("store", self._cache.store, request.tokens, kv, **request.names)
        self.counts["stored_chunks"] += stored // CHUNK_TOKENS

    def _retrieve(self, request: _Request, promised: int, skip_tokens: int = 0) -> None:
        words = self._model.blank_words(len(request.tokens))
        out = self._model.tensor(words)
        mask = self._timed(
            "retrieve", self._cache.retrieve, request.tokens, out, skip_tokens=skip_tokens, **request.names
        )
        found = int(mask.sum())
        self._judge_mask(mask, found, request)
        skipped = min(skip_tokens, found) // CHUNK_TOKENS
        wrong = first_wrong_chunk(
            self._model, words, request.tokens, request.identity, begin=skipped, end=found // CHUNK_TOKENS
        )
        if not wrong and not is_untouched(words, skipped):
            wrong = f"the first {skipped} chunks were to be skipped and were written"
        if wrong:
            raise WrongByteError(wrong)
        self.counts["verified_chunks"] += found // CHUNK_TOKENS - skipped
        self.counts["verified_bytes"] += (found // CHUNK_TOKENS - skipped) * self._model.chunk_bytes
        self.counts["hits"] += found > 0
        self.counts["promises"] += promised > 0
        self.counts["promises_broken"] += found < promised

    def _judge_mask(self, mask: npt.NDArray[np.bool_], found: int, request: _Request) -> None:
        if len(mask) != len(request.tokens) or not mask[:found].all() or found % CHUNK_TOKENS:
            raise WrongByteError(f"the mask of {len(mask)} tokens is no prefix of whole chunks: {found} are True")

    def _timed(self, kind: str, call: Callable[..., T], *arguments: Any, **names: Any) -> T:
        started = time.monotonic()
        answer = call(*arguments, **names)
        self.longest_s[kind] = max(self.longest_s.get(kind, 0.0), time.monotonic() - started)
        return answer


class _Request:
    def __init__(self, tokens: npt.NDArray[np.int32], identity: Identity, request_id: str) -> None:
        self.tokens = tokens
        self.identity = identity
        self.names = {"salt": identity.salt, "variant": identity.variant, "request_id": request_id}
