"""Twenty prompts of mixed shared prefixes, and two that grow long."""

from __future__ import annotations

import random

_WORDS = [
    "the",
    "a",
    "city",
    "river",
    "people",
    "of",
    "in",
    "market",
    "house",
    "green",
    "old",
    "train",
    "window",
    "morning",
    "light",
    "paper",
    "stone",
    "music",
    "and",
    "water",
    "letter",
    "garden",
    "winter",
    "road",
    "small",
    "bright",
    "teacher",
    "ship",
    "mountain",
    "bread",
    "evening",
    "question",
    "simple",
    "engine",
    "song",
]


def _text(words: int, seed: int) -> str:
    source = random.Random(seed)
    return " ".join(source.choice(_WORDS) for _ in range(words))


def twenty() -> list[str]:
    """Three families, whose members share 140, 90 and 60 words, and five strangers of several lengths."""
    families = [(140, 1, 6), (90, 2, 5), (60, 3, 4)]
    prompts = [
        f"{_text(shared, family)}. {_text(3 + 9 * member, 100 * family + member)}. Then"
        for shared, family, members in families
        for member in range(members)
    ]
    return prompts + [f"{_text(words, 50 + words)}. Then" for words in (5, 40, 70, 110, 170)]


def growing() -> list[str]:
    """Two prompts that outgrow a small KV cache together while they are answered."""
    return [f"{_text(145, seed)}. Then" for seed in (7, 8)]
