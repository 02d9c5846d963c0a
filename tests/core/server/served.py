"""The server under test, over a real storage manager."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.core.server.talker import PATIENCE_S
from tests.memory_store import CHUNK_TOKENS, Rig

from lmcache_core import KeyNamespace, KVLayout
from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.local import LocalAccess
from lmcache_core.errors import LayoutError
from lmcache_core.server.control import ControlServer
from lmcache_core.wire import messages as wire
from lmcache_core.wire.address import parse_address


class Served:
    """A server over a real storage manager, with all parts at hand."""

    def __init__(self, address: str, *, lends: bool = True, **rig: Any) -> None:
        self.rig = Rig(shared=lends, **rig)
        self.registered: list[tuple[KeyNamespace, KVLayout, str]] = []
        self.reason = "a store is down"
        self.status: Callable[[], dict[str, Any]] = lambda: {"hello": "world"}
        self.server = ControlServer(
            parse_address(address),
            arena=self.rig.arena if lends else None,
            open_format=self._open,
            on_registered=lambda *told: self.registered.append(told),
            is_healthy=lambda: self.rig.healthy,
            reason=lambda: self.reason,
            status=lambda: self.status(),  # noqa: PLW0108 - a test may change it
            metrics=self.rig.metrics,
            timeout_s=self.rig.timeout_s,
        )

    def _open(self, layout: KVLayout, wish: wire.Register) -> LocalAccess:
        if wish.model_name == "too-big":
            raise LayoutError("one chunk is larger than the memory")
        return LocalAccess(
            self.rig.storage,
            ChunkFormat.of(
                layout,
                model_name=wish.model_name,
                world_size=wish.world_size,
                ranks=wish.ranks,
                chunk_tokens=CHUNK_TOKENS,
            ),
            is_healthy=lambda: self.rig.healthy,
            journal=self.rig.journal,
            metrics=self.rig.metrics,
            loaders=self.rig.loaders,
        )

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.status()["sessions"]
        return found

    def is_exact(self) -> bool:
        """Whether nothing is leased, claimed or promised, and no byte is lost."""
        rig = self.rig
        used, free = rig.arena.balance()
        return (
            used + free == rig.arena.capacity_bytes
            and rig.arena.blocks == rig.local.chunks
            and rig.storage.promises == 0
            and rig.storage.claims == 0
            and self.server.lease_counts() == (0, 0)
        )

    def close(self) -> None:
        self.server.stop()
        self.rig.close()


def until(true: Callable[[], bool], limit_s: float = PATIENCE_S) -> bool:
    """Wait for what the server's threads do."""
    end = time.monotonic() + limit_s
    wait = threading.Event()
    while not true() and time.monotonic() < end:
        wait.wait(0.002)
    return true()


def socket_path(folder: Path) -> str:
    return f"ipc://{folder}/s.sock"
