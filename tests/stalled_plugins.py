"""The plugins of ``dists/stalls``, as if they were installed: each hangs in one call until it is let go."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from lmcache_core import KVLayout, Loaded, load
from lmcache_core.app.in_process import CacheManager
from lmcache_core.instance import Instance
from lmcache_core.registry.watched import WatchedCall

DISTS = Path(__file__).parent / "dists"
LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
LIMIT_S = 0.2
PATIENCE_S = 30.0
WAY_OUT = "mend what it waits for, or raise plugins.load_timeout_secs"
PLACE = r"\(in \w+, [\w.]+ line \d+\)"  # on a slow machine, not yet where it will hang


class StalledPlugins:
    """Loads one of them at a time; only what hangs is hurried, so that a slow machine fails no test.

    Attributes:
        module: Theirs.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.syspath_prepend(str(DISTS / "stalls"))
        (found,) = distributions(path=[str(DISTS / "stalls")])
        self.names = [entry.name for entry in found.entry_points]
        self.module: Any = importlib.import_module("acme_stalls")
        self._valve: threading.Event = importlib.import_module("acme_valve").VALVE

    def load(self, name: str, *, required: bool = False, limit_s: float = LIMIT_S, **overrides: object) -> Loaded:
        """Load it and none of its siblings."""
        plugins = {
            "disabled": [other for other in self.names if other != name],
            "required": [name] if required else [],
            "load_timeout_secs": 60.0,
        }
        loaded = load(overrides={"plugins": plugins, **overrides}, environ={})
        loaded.registry.limit_s = limit_s
        return loaded

    def manager(self, name: str, **how: Any) -> CacheManager:
        """Make a cache with it."""
        small: Mapping[str, object] = {"chunk_size": 4, "max_local_cpu_size": 0.001}
        loaded = self.load(name, **{**small, **how})
        values = loaded.configuration.values
        instance = Instance.of(values, layout=LAYOUT, model_name="m", world_size=1, rank=0, model_type="")
        return CacheManager(loaded, instance)

    def let_go(self) -> None:
        """Have all calls return, and wait until their threads have ended."""
        self._valve.set()
        for thread in threading.enumerate():
            if isinstance(thread, WatchedCall) or thread.name.startswith("lmcache-tell-"):
                thread.join(PATIENCE_S)

    def forget(self) -> None:
        """Let go, and take the modules out of the process."""
        self.let_go()
        for name in ("acme_stalls", "acme_valve"):
            sys.modules.pop(name, None)
