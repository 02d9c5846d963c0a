"""Getting the beginning of a batch out of the cache, and putting it in afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from transformers import DynamicCache

from lmcache_core import KVCache
from lmcache_plugins.transformers.layers import RowPrefix, fill, row_kv
from lmcache_plugins.transformers.model_kv import ModelKV
from lmcache_plugins.transformers.prompt import Prompt, Tokens


class Owner(TypedDict):
    """Whose chunks the calls of one row read and write.

    Attributes:
        salt: The tenant's.
        variant: Of the model, such as a LoRA adapter.
        request_id: For events, and to tie a retrieve to its lookup.
    """

    salt: str
    variant: str
    request_id: str


def owners(rows: int, *, salt: str, variant: str, request_id: str) -> list[Owner]:
    """Name each row of a batch; two rows with one prompt must not share a lookup. ``""`` gets a name of ours."""
    request_id = request_id or uuid.uuid4().hex
    names = [request_id] if rows == 1 else [f"{request_id}/{row}" for row in range(rows)]
    return [Owner(salt=salt, variant=variant, request_id=name) for name in names]


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

    def __init__(self, cache: KVCache, model_kv: ModelKV) -> None:
        self._cache = cache
        self._kv = model_kv

    def restore(self, prompt: Prompt, rows: Sequence[Owner], target: DynamicCache) -> Restored:
        """Fill an empty cache with the columns that every row of the batch has.

        All rows of a `DynamicCache` are equally long, so the row that knows least decides; padding
        counts as known. The last column is always left to compute.
        """
        known = self._look_up([prompt.row(number) for number in range(len(rows))], rows)
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
        rows: Sequence[Owner],
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
            for kept_tokens in self._ends(len(tokens), len(prompt.row(number))):
                if kept_tokens > known[number]:
                    place, start = number * prompt.copies, prompt.padding[number]
                    kv = row_kv(source, self._kv.layout, place, start, kept_tokens)
                    stored_tokens += self._cache.store(tokens[:kept_tokens], kv, **row)
        return stored_tokens

    def _ends(self, tokens: int, prompt_tokens: int) -> list[int]:
        """Where what is kept of a sequence ends: with its full chunks, and with the prompt where that is kept whole."""
        chunk_tokens = self._cache.chunk_tokens or 1
        full_tokens = tokens - tokens % chunk_tokens
        if not self._cache.save_unfull_chunk or prompt_tokens % chunk_tokens == 1:  # the last token is always computed
            return [full_tokens]
        return [prompt_tokens, full_tokens] if full_tokens > prompt_tokens else [prompt_tokens]

    def _look_up(self, prompts: Sequence[Tokens], rows: Sequence[Owner]) -> list[int]:
        """Count each row's known tokens. The rows of a batch are loaded from further tiers at the same time."""
        if len(rows) == 1:
            return [self._cache.lookup(prompts[0], **rows[0])]
        pending = [self._cache.lookup_async(tokens, **row) for tokens, row in zip(prompts, rows, strict=True)]
        return [lookup.result() for lookup in pending]

    def _columns(self, prompt: Prompt, known: Sequence[int]) -> int:
        columns = min(padding + tokens for padding, tokens in zip(prompt.padding, known, strict=True))
        columns = min(columns, prompt.columns - 1)
        return columns - columns % prompt.slice_tokens if prompt.slice_tokens else columns

    def _fetch(
        self, tokens: Tokens, needed_tokens: int, promised_tokens: int, row: Owner
    ) -> tuple[torch.Tensor | None, int]:
        """Retrieve the chunks that cover some tokens; give them, and how many tokens the row now has."""
        chunk_tokens = self._cache.chunk_tokens or 1
        wanted_tokens = min(-(-needed_tokens // chunk_tokens) * chunk_tokens, promised_tokens)
        if wanted_tokens < promised_tokens:  # a retrieve must be of all that its lookup promised
            self._cache.release(tokens, **row)
        if not wanted_tokens:
            return None, promised_tokens
        kv = torch.empty(self._kv.layout.kv_shape(wanted_tokens), dtype=self._kv.dtype, device=self._kv.devices[0])
        mask = self._cache.retrieve(tokens[:wanted_tokens], kv, **row)
        delivered_tokens = wanted_tokens if mask.all() else int(mask.argmin())  # up to the first that is missing
        return kv, promised_tokens if delivered_tokens == wanted_tokens else delivered_tokens
