"""One of several workers of ``bench/server.py``: does what it is told on standard input, and says when it is done.

Arguments: the server's address, chunks, its number. Words: ``store``, ``retrieve``.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from lmcache_core import KVLayout, connect

LAYOUT = KVLayout(num_layers=32, num_kv_heads=8, head_size=128, dtype="bfloat16")
CHUNK_TOKENS = 256


def main() -> None:
    """Serve words until the input ends."""
    torch.set_num_threads(1)
    address, chunks, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tokens = np.arange(chunks * CHUNK_TOKENS, dtype=np.int32) + (number << 24)
    kv = torch.empty(LAYOUT.kv_shape(len(tokens)), dtype=torch.bfloat16).fill_(number + 1.5)
    out = torch.zeros_like(kv)
    with connect(environ={}, address=address, layout=LAYOUT, model_name="bench") as cache:
        print("ready", flush=True)
        for word in sys.stdin:
            done = cache.store(tokens, kv) if word.strip() == "store" else int(cache.retrieve(tokens, out).sum())
            print(int(done == len(tokens)), flush=True)
    if not torch.equal(kv, out):
        sys.exit("what was retrieved is not what was stored")


if __name__ == "__main__":
    main()
