"""A process with a cache, and a child of it with one of its own; prints what each has in force.

Arguments: how the child is started, and names of plugins that are disabled in it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any

from lmcache_core import CacheManager, KVLayout, connect, listen

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
KEYS = {"chunk_size": 4, "max_local_cpu_size": 0.001}


def make() -> CacheManager:
    return CacheManager.from_config(overrides=KEYS, layout=LAYOUT, model_name="m")


def told(manager: CacheManager) -> dict[str, Any]:
    return {
        "digest": manager.registry.in_force().digest,
        "names": [record.name for record in manager.registry.plugins],
        "checks": sorted(check.name for check in manager.health.report().checks),
    }


def child(pipe: Connection, address: str, disabled: str) -> None:
    if disabled:
        os.environ["LMCACHE_PLUGINS__DISABLED"] = disabled
    with make() as manager:
        pipe.send(told(manager))
    with connect(overrides=KEYS, layout=LAYOUT, model_name="m", address=address) as client:
        pipe.send(client.is_healthy())


def main(method: str, disabled: str) -> None:
    context = multiprocessing.get_context(method)
    with make() as manager, tempfile.TemporaryDirectory(prefix="lmc-") as folder:
        desk = listen(manager, f"ipc://{folder}/s.sock")
        here, there = context.Pipe()
        process = context.Process(target=child, args=(there, f"ipc://{folder}/s.sock", disabled))
        process.start()
        print(json.dumps({"parent": told(manager), "child": here.recv(), "connected": here.recv()}))
        process.join()
        desk.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
