"""What the reuse tracker costs and how far its miss-ratio curve is off.

Prints nanoseconds per access that is not in the sample against an empty method call measured in
alternation, bytes per tracked chunk, and the error of the curve against an exact LRU for a Zipf trace and a
trace of conversations, 10^6 accesses each. The error is the mean of absolute errors over 200 sizes up
to the footprint, as the SHARDS paper has it; the largest one is printed too, from 2048 chunks on and for
all sizes on a logarithmic scale. Ends with 1 when cost, memory or mean error is above its bound. Run it as
``python bench/reuse.py``; ``--trace FILE`` adds a trace in Mooncake's format.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from bench.parts.reuse_traces import (
    Trace,
    conversation_trace,
    exact_distances,
    miss_ratios,
    mooncake_trace,
    with_digests,
    zipf_trace,
)

from lmcache_core import ChunkReuseTracker

MOST_CALLS = 5.0
MOST_BYTES = 200.0
MOST_ERROR = 0.02
CAP = 1 << 20


class Empty:
    """What the cost is measured against."""

    def method(self) -> None:
        """Do nothing."""


def cost_ns(chunks: int, rounds: int) -> tuple[float, float]:
    """Give the best nanoseconds of an empty call and of an access outside the sample, for lookups of so many chunks."""
    tracker, empty = ChunkReuseTracker(clock=lambda: 0.0), Empty()
    digests = [bytes([1 + number % 63]) + number.to_bytes(31, "little") for number in range(chunks)]
    lookups = range(100_000 // chunks)
    calls = range(100_000)
    least_call = least_access = float("inf")
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _call in calls:
            empty.method()
        least_call = min(least_call, (time.perf_counter_ns() - began) / len(calls))
        began = time.perf_counter_ns()
        for _lookup in lookups:
            tracker.observe(digests, 0.0)
        least_access = min(least_access, (time.perf_counter_ns() - began) / (len(lookups) * chunks))
    return least_call, least_access


def bytes_per_chunk(chunks: int) -> float:
    digests = [number.to_bytes(8, "little") * 4 for number in range(chunks)]
    tracemalloc.start()
    tracker = ChunkReuseTracker(sample_rate=1, table_cap=CAP, clock=lambda: 0.0)
    for start in range(0, chunks, 64):
        tracker.observe(digests[start : start + 64], 0.0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / tracker.tracked


def errors(trace: Trace, rate: int, seed: int) -> tuple[float, float, float, float]:
    """Give mean error, largest from 2048 chunks on, largest of all, and microseconds per access."""
    distances = exact_distances(trace) if id(trace) not in KNOWN else KNOWN[id(trace)]
    KNOWN[id(trace)] = distances
    footprint = int((distances < 0).sum())
    tracker = ChunkReuseTracker(sample_rate=rate, table_cap=CAP, clock=lambda: 0.0)
    lookups = list(with_digests(trace, seed))
    began = time.perf_counter()
    for digests in lookups:
        tracker.observe(digests, 0.0)
    took_us = (time.perf_counter() - began) * 1e6 / len(distances)
    curve = tracker.curve()
    even = np.linspace(1, footprint, 200).astype(int)
    log = np.unique(np.geomspace(1, footprint, 200).astype(int))
    off_even, off_log = (
        np.abs(np.array([curve.miss_ratio(size).share for size in sizes]) - miss_ratios(distances, sizes))
        for sizes in (even, log)
    )
    return float(off_even.mean()), float(off_log[log >= 2048].max()), float(off_log.max()), took_us


KNOWN: dict[int, np.ndarray] = {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accesses", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3, help="samples of each trace")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--trace", type=Path, action="append", default=[], help="JSON lines with hash_ids")
    options = parser.parse_args()
    fine = True
    for chunks in (1, 16, 64, 500):
        call_ns, access_ns = cost_ns(chunks, options.rounds)
        ratio = access_ns / call_ns
        fine &= ratio <= MOST_CALLS
        print(
            f"access outside the sample, {chunks:>3} a lookup  {access_ns:7.1f} ns "
            f"= {ratio:4.2f} empty calls of {call_ns:.1f} ns"
        )
    for chunks in (5_000, 20_000, 43_700, 65_536, 200_000):
        held = bytes_per_chunk(chunks)
        fine &= held <= MOST_BYTES
        print(f"memory, {chunks:>7} tracked  {held:6.1f} bytes a chunk")
    traces = {
        "zipf 0.8, 10^5 chunks": zipf_trace(options.accesses, 100_000, 0.8),
        "zipf 1.0, 10^5 chunks": zipf_trace(options.accesses, 100_000, 1.0),
        "conversations": conversation_trace(options.accesses),
        **{path.name: mooncake_trace(path) for path in options.trace},
    }
    for name, trace in traces.items():
        print(f"{name}: {len(trace)} lookups, {sum(map(len, trace))} accesses")
        for rate in (64, 8):
            for seed in range(options.seeds):
                mean, far, largest, took_us = errors(trace, rate, seed)
                fine &= rate != 64 or name not in list(traces)[:3] or mean <= MOST_ERROR
                print(
                    f"  R {rate:>2}, sample {seed}: mean {mean:.4f}, largest from 2048 chunks {far:.4f}, "
                    f"of all sizes {largest:.4f}; {took_us:.2f} us an access"
                )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
