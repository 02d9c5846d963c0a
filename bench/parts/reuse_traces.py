"""Access traces of known shape, and exact LRU caches to compare an estimate with."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

Trace = list[list[int]]
"""One list of chunk numbers for each lookup, in the order of the prompt."""


def zipf_trace(accesses: int, chunks: int, exponent: float, seed: int = 1) -> Trace:
    """Independent accesses, one chunk a lookup; the k-th chunk has a share of k ** -exponent."""
    shares = np.cumsum(np.arange(1.0, chunks + 1) ** -exponent)
    drawn = np.random.default_rng(seed).random(accesses) * shares[-1]
    return [[chunk] for chunk in np.searchsorted(shares, drawn).tolist()]


def conversation_trace(accesses: int, seed: int = 1) -> Trace:
    """Conversations in turns, with shared system prompts, in the shape of Mooncake's public trace.

    As there: one chunk that every request begins with, some 24 chunks a request with a long tail,
    turns that repeat what was said and add to it, between those of many other conversations, and
    between a third and a half of all accesses to chunks seen before.
    """
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 12, size=40)
    weights = np.arange(1, 41) ** -1.2
    trace: Trace = []
    going: list[list[int]] = []
    fresh, made = 1000, 0
    while made < accesses:
        if going and random.random() < 0.3:  # the next turn, of a recent conversation as a rule
            prompt = going.pop(-1 - min(int(random.exponential(200)), len(going) - 1))
            added = 1 + int(random.exponential(5))
        else:
            system = int(random.choice(40, p=weights / weights.sum()))
            prompt = [0, *range(1 + 20 * system, 1 + 20 * system + int(lengths[system]))]
            added = 1 + int(random.pareto(1.5) * 8)
        added = min(added, 250)
        prompt = [*prompt, *range(fresh, fresh + added)]
        fresh += added
        if len(prompt) < 250:
            going.append(prompt)
        trace.append(prompt)
        made += len(prompt)
    return trace


def mooncake_trace(path: Path) -> Trace:
    """Read a trace in Mooncake's format: JSON lines with ``hash_ids``."""
    with path.open() as lines:
        return [list(dict.fromkeys(json.loads(line)["hash_ids"])) for line in lines]


def with_digests(trace: Trace, seed: int = 0) -> Iterator[list[bytes]]:
    """Give each lookup as the digests of its chunks; another seed is another sample."""
    known: dict[int, bytes] = {}
    salt = seed.to_bytes(8, "little")
    for lookup in trace:
        for chunk in lookup:
            if chunk not in known:
                known[chunk] = hashlib.sha256(salt + chunk.to_bytes(8, "little")).digest()
        yield [known[chunk] for chunk in lookup]


def lru_miss_ratio(trace: Trace, size: int) -> float:
    """Run an LRU cache: a lookup hits what is there, then uses its chunks from the last to the first."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for lookup in trace:
        misses += sum(chunk not in cache for chunk in lookup)
        for chunk in reversed(lookup):
            cache[chunk] = None
            cache.move_to_end(chunk)
        while len(cache) > size:
            cache.popitem(last=False)
    return misses / sum(map(len, trace))


def exact_distances(trace: Trace) -> np.ndarray:
    """Give the stack distance of every access, -1 for a first one, with a Fenwick tree over all uses."""
    end = sum(map(len, trace)) + 1
    tree = [0] * end
    place_of: dict[int, int] = {}
    distances: list[int] = []
    used = 0

    def add(place: int, change: int) -> None:
        while place < end:
            tree[place] += change
            place += place & -place

    for lookup in trace:
        for chunk in lookup:
            place, older = place_of.get(chunk, 0), 0
            if not place:
                distances.append(-1)
                continue
            while place:
                older += tree[place]
                place &= place - 1
            distances.append(len(place_of) - older)
        for chunk in reversed(lookup):
            if chunk in place_of:
                add(place_of[chunk], -1)
            used += 1
            place_of[chunk] = used
            add(used, 1)
    return np.array(distances)


def miss_ratios(distances: np.ndarray, sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Give the exact miss ratio of LRU caches of these sizes."""
    reused = np.sort(distances[distances >= 0])
    return 1.0 - np.searchsorted(reused, np.asarray(sizes), side="left") / len(distances)
