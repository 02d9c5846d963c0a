"""A child that is forked while others use the cache: each call there is a miss, and none waits."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
    import os, sys, torch
    from lmcache_core import CacheManager, KVLayout

    layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
    keys = {"chunk_size": 4, "max_local_cpu_size": 0.01}
    tokens, kv = list(range(8)), torch.zeros(2, 2, 8, 8)
    with CacheManager.from_config(overrides=keys, environ={}, layout=layout, model_name="m") as manager:
        engine = manager.engine
        engine.store(tokens, kv)
        storage = manager.host.storage
        with storage.local._lock, storage._filling._lock, engine._warn_lock:  # as if other threads held them
            child = os.fork()
            if not child:
                print(
                    engine.store(tokens, kv), engine.lookup(tokens), engine.lookup_async(tokens).result(),
                    engine.retrieve(tokens, kv).any(), engine.release(tokens), engine.clear(), engine.is_healthy(),
                    flush=True,
                )
                os._exit(0)
            os.waitpid(child, 0)
        print(engine.lookup(tokens), flush=True)
"""


def test_a_forked_child_is_served_nothing_and_never_waits() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=False, timeout=60
    )

    assert run.stdout.splitlines() == ["0 0 0 False False [] False", "8"], run.stderr
