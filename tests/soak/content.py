"""Prompts and their KV: every byte follows from model, tenant, variant and all tokens before it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from lmcache_core import KVLayout

CHUNK_TOKENS = 64
UNTOUCHED = 0x5A
"""Fills the bytes that a retrieve is to write, or to leave alone."""

_WORDS = {4: np.int32, 2: np.int16}
_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = np.uint64(0xD1342543DE82EF95)


@dataclass(frozen=True)
class Identity:
    """Whose KV it is; two that differ anywhere never have a chunk in common."""

    salt: str
    variant: str


@dataclass(frozen=True)
class Model:
    """A model whose KV can be told from that of every other."""

    name: str
    layout: KVLayout

    @property
    def chunk_bytes(self) -> int:
        """Of one chunk's payload."""
        return self.layout.bytes_per_token * CHUNK_TOKENS

    @property
    def dtype(self) -> torch.dtype:
        """Of the KV tensor."""
        found: torch.dtype = getattr(torch, self.layout.dtype)
        return found

    def chunk(self, seed: int) -> npt.NDArray[np.generic]:
        """The words of one chunk, ``[kv, layers, chunk_tokens, hidden]``; no place and no seed like another."""
        places = np.arange(self.chunk_bytes // 8, dtype=np.uint64)
        words = (places * _STRIDE + np.uint64(seed)) * _SPREAD
        chunk: npt.NDArray[np.generic] = words.view(_WORDS[self.dtype.itemsize])
        return chunk.reshape(self.layout.kv_shape(CHUNK_TOKENS))

    def seeds(self, tokens: npt.NDArray[np.int32], identity: Identity) -> list[int]:
        """One seed a full chunk, from all that is before its end."""
        seed = xxhash.xxh3_64_intdigest(repr((self.name, identity.salt, identity.variant)).encode())
        seeds = []
        for start in range(0, len(tokens) - CHUNK_TOKENS + 1, CHUNK_TOKENS):
            seed = xxhash.xxh3_64_intdigest(tokens[start : start + CHUNK_TOKENS].tobytes(), seed=seed)
            seeds.append(seed)
        return seeds

    def kv(self, tokens: npt.NDArray[np.int32], identity: Identity) -> torch.Tensor:
        """The whole KV of a prompt, as a model would compute it."""
        words = self.blank_words(len(tokens))
        for place, seed in enumerate(self.seeds(tokens, identity)):
            words[:, :, place * CHUNK_TOKENS : (place + 1) * CHUNK_TOKENS] = self.chunk(seed)
        return self.tensor(words)

    def blank_words(self, tokens: int) -> npt.NDArray[np.generic]:
        """Room for the KV of so many tokens, each byte `UNTOUCHED`."""
        words = np.empty(self.layout.kv_shape(tokens), dtype=_WORDS[self.dtype.itemsize])
        words.view(np.uint8).fill(UNTOUCHED)
        return words

    def tensor(self, words: npt.NDArray[np.generic]) -> torch.Tensor:
        """The same memory as a KV tensor."""
        return torch.from_numpy(words).view(self.dtype)


MODELS = (
    Model("soak-gqa", KVLayout(num_layers=4, num_kv_heads=2, head_size=64, dtype="float32")),
    Model("soak-mla", KVLayout(num_layers=5, num_kv_heads=1, head_size=72, dtype="bfloat16", use_mla=True)),
)
"""256 KiB and 45 KiB a chunk."""

IDENTITIES = (Identity("", ""), Identity("tenant-a", ""), Identity("tenant-a", "lora"), Identity("tenant-b", ""))

_TRUNKS = 12
_BRANCHES = 24
_MOST_TRUNK_TOKENS = 5 * CHUNK_TOKENS
_MOST_BRANCH_TOKENS = 6 * CHUNK_TOKENS


def draw_prompt(rng: random.Random) -> npt.NDArray[np.int32]:
    """A prompt: one of a few beginnings, some of them much liked, and one of their continuations."""
    trunk = min(int(rng.expovariate(0.35)), _TRUNKS - 1)
    branch = min(int(rng.expovariate(0.15)), _BRANCHES - 1)
    head = _stream(trunk, -1)
    tail = _stream(trunk, branch)
    return np.concatenate([head, tail[: rng.randrange(len(tail))]])


def _stream(trunk: int, branch: int) -> npt.NDArray[np.int32]:
    """The tokens of a beginning or of a continuation; always the same ones."""
    numbers = np.random.default_rng([trunk, branch + 1])
    most = _MOST_TRUNK_TOKENS if branch < 0 else _MOST_BRANCH_TOKENS
    return numbers.integers(0, 50_000, int(numbers.integers(CHUNK_TOKENS // 2, most)), dtype=np.int32)


def first_wrong_chunk(
    model: Model,
    words: npt.NDArray[np.generic],
    tokens: npt.NDArray[np.int32],
    identity: Identity,
    *,
    begin: int,
    end: int,
) -> str:
    """Compare chunks ``begin`` to ``end`` of a retrieved tensor; give ``""`` or a sentence about the first wrong one."""
    seeds = model.seeds(tokens, identity)
    for place in range(begin, end):
        found = words[:, :, place * CHUNK_TOKENS : (place + 1) * CHUNK_TOKENS]
        expected = model.chunk(seeds[place])
        if not np.array_equal(found, expected):
            wrong = int(np.count_nonzero(found != expected))
            return f"chunk {place} of {len(seeds)}: {wrong} of {expected.size} elements are wrong ({model.name}, {identity})"
    return ""


def is_untouched(words: npt.NDArray[np.generic], chunks: int) -> bool:
    """Whether no byte of the leading chunks was written."""
    part = np.ascontiguousarray(words[:, :, : chunks * CHUNK_TOKENS]).view(np.uint8)
    return bool((part == UNTOUCHED).all())
