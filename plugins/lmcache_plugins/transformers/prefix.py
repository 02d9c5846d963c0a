"""Getting the beginning of a batch out of the cache, and putting it in afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from lmcache_plugins.transformers.layers import RowPrefix, fill, row_kv
from lmcache_plugins.transformers.model_kv import ModelKV
from lmcache_plugins.transformers.prompt import Prompt, Tokens


class PrefixCache(Protocol):
    """What is used of the cache; `CacheManager.engine` and a client of a cache server are it."""

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk; 0 while that is not known."""

    def is_healthy(self) -> bool:
        """Whether calls are served now."""

    def store(self, tokens: Any, kv: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> int:
        """Keep the KV of all full chunks; give the tokens newly kept."""

    def lookup(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> int:
        """Count the leading tokens that a retrieve will deliver, and hold them for it."""

    def retrieve(self, tokens: Any, out: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> Any:
        """Fill the KV of the leading tokens that are kept; ``bool [n]``."""

    def release(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> bool:
        """Give up a lookup that no retrieve will follow."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose chunks a call reads and writes.

    Attributes:
        salt: The tenant's.
        variant: Of the model, such as a LoRA adapter.
        request_id: For events, and to tie a retrieve to its lookup; ``""`` for one of ours.
    """

    salt: str
    variant: str
    request_id: str

    def rows(self, count: int) -> list[dict[str, str]]:
        """Arguments for the calls of each row; two rows with one prompt must not share a lookup."""
        request_id = self.request_id or uuid.uuid4().hex
        names = [request_id] if count == 1 else [f"{request_id}/{row}" for row in range(count)]
        return [{"salt": self.salt, "variant": self.variant, "request_id": name} for name in names]


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of a batch.

    Attributes:
        columns: Of the batch that its cache begins with; 0 for none.
        known: Leading tokens of each row that the cache has.
        reused_tokens: Prompt tokens that need not be computed, over all rows.
    """

    columns: int
    known: tuple[int, ...]
    reused_tokens: int


class PrefixStore:
    """Moves prefixes between batches and the cache.

    Args:
        cache: Of chunks.
        model_kv: The model's.
    """

    def __init__(self, cache: PrefixCache, model_kv: ModelKV) -> None:
        self._cache = cache
        self._kv = model_kv

    def restore(self, prompt: Prompt, rows: Sequence[dict[str, str]], target: DynamicCache) -> Restored:
        """Fill an empty cache with the columns that every row of the batch has.

        All rows of a `DynamicCache` are equally long, so the row that knows least decides; padding
        counts as known. The last column is always left to compute.
        """
        known = [self._cache.lookup(prompt.row(number), **row) for number, row in enumerate(rows)]
        columns = self._columns(prompt, known)
        prefixes = []
        for number, row in enumerate(rows):
            needed_tokens = max(0, columns - prompt.padding[number])
            kv, known[number] = self._fetch(prompt.row(number), needed_tokens, known[number], row)
            prefixes.append(RowPrefix(prompt.padding[number], kv))
        columns = self._columns(prompt, known)
        reused_tokens = sum(max(0, columns - padding) for padding in prompt.padding)
        if not reused_tokens:
            return Restored(0, tuple(known), 0)
        fill(target, self._kv.layout, prefixes, columns, self._kv.devices)
        if prompt.copies > 1:
            target.batch_repeat_interleave(prompt.copies)
        return Restored(columns, tuple(known), reused_tokens * prompt.copies)

    def keep(
        self,
        sequences: Sequence[Tokens],
        prompt: Prompt,
        known: Sequence[int],
        rows: Sequence[dict[str, str]],
        source: DynamicCache,
    ) -> int:
        """Store what the cache does not have yet of each row; give the tokens newly kept.

        Args:
            sequences: Tokens of each row, without padding, whose KV is in `source`.
            prompt: The batch.
            known: From `restore`.
            rows: Arguments for the calls of each row.
            source: As `generate` leaves it.
        """
        stored_tokens = 0
        for number, (tokens, row) in enumerate(zip(sequences, rows, strict=True)):
            full_tokens = len(tokens) - len(tokens) % (self._cache.chunk_tokens or 1)
            if full_tokens > known[number]:
                place, start = number * prompt.copies, prompt.padding[number]
                kv = row_kv(source, self._kv.layout, place, start, full_tokens)
                stored_tokens += self._cache.store(tokens[:full_tokens], kv, **row)
        return stored_tokens

    def _columns(self, prompt: Prompt, known: Sequence[int]) -> int:
        columns = min(padding + tokens for padding, tokens in zip(prompt.padding, known, strict=True))
        columns = min(columns, prompt.columns - 1)
        return columns - columns % prompt.slice_tokens if prompt.slice_tokens else columns

    def _fetch(
        self, tokens: Tokens, needed_tokens: int, promised_tokens: int, row: dict[str, str]
    ) -> tuple[torch.Tensor | None, int]:
        """Retrieve the chunks that cover some tokens; give them, and how many tokens the row now has."""
        chunk_tokens = self._cache.chunk_tokens or 1
        wanted_tokens = -(-needed_tokens // chunk_tokens) * chunk_tokens
        if wanted_tokens < promised_tokens:  # a retrieve must be of all that its lookup promised
            self._cache.release(tokens, **row)
        if not wanted_tokens:
            return None, promised_tokens
        kv = torch.empty(self._kv.layout.kv_shape(wanted_tokens), dtype=self._kv.dtype, device=self._kv.devices[0])
        delivered_tokens = int(self._cache.retrieve(tokens[:wanted_tokens], kv, **row).sum())
        return kv, promised_tokens if delivered_tokens == wanted_tokens else delivered_tokens
