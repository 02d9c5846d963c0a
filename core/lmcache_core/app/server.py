"""One cache for all inference processes of a host: what ``lmcachectl serve`` runs."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.local import LocalAccess
from lmcache_core.app.host import CacheHost, HostRole
from lmcache_core.app.setup import load_logged
from lmcache_core.app.status import describe_host
from lmcache_core.contracts.control import ThreadReport
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.errors import LayoutError
from lmcache_core.loading import Loaded
from lmcache_core.memory.arena import Arena
from lmcache_core.server.control import ControlServer
from lmcache_core.telemetry.server_message import server_message
from lmcache_core.threads import ThreadLevel
from lmcache_core.tokens.hashing import nearest_chunk_tokens
from lmcache_core.version import __version__
from lmcache_core.wire.address import default_address, parse_address
from lmcache_core.wire.messages import PRODUCT, PROTOCOL, Register

log = logging.getLogger(__name__)


_COMMITS_S = 1.0
"""Longest that stopping waits for clients to finish the copies they are in."""


class CacheServer:
    """Arena, tiers, health and telemetry of a host, and the sessions of its clients. A context manager.

    Attributes:
        host: Tiers, health, pages.
        config: The validated configuration with each value's origin.
        registry: The plugins.
        health: The monitor.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.config = loaded.configuration
        self.registry = loaded.registry
        self._values = values = loaded.configuration.values
        self.host = CacheHost(
            loaded,
            HostRole(
                labels={
                    "instance_id": values.lmcache_instance_id or uuid.uuid4().hex[:12],
                    "model_name": "",
                    "worker_id": "0",
                    "role": "server",
                },
                rank=0,
                own_rank=None,
                deployment_mode="mp_server",
                describe=lambda: server_message(values),
                shared=True,
            ),
        )
        self.health = self.host.health
        self._started_s = time.monotonic()
        self._draining = False
        self._populating = _Populating(self.host.storage.local.arena, self.health.wake)
        self._control = ControlServer(
            parse_address(values.server_address or default_address()),
            arena=self.host.storage.local.arena,
            open_format=self._open,
            on_registered=self.host.journal.registered,
            is_healthy=self._is_healthy,
            reason=self._reason,
            status=self.status,
            plugins=self.registry.in_force(),
            metrics=self.host.metrics,
            timeout_s=values.blocking_timeout_secs,
        )
        self.host.thread_sources += [self._populating.threads, self._control.threads]

    @classmethod
    def from_config(
        cls,
        config_file: str | Path | None = None,
        *,
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> CacheServer:
        """Build a server from a file, ``LMCACHE_*`` variables and overrides; opens no socket.

        Raises:
            ConfigError: Names all offenders at once.
            PluginError: A required plugin did not load, or two plugins clash.
        """
        return cls(load_logged(config_file, overrides, environ))

    @property
    def address(self) -> str:
        """Where clients find it; with the port that was given, where any was asked for."""
        return self._control.address

    def start(self) -> None:
        """Start tiers and health, then take clients.

        Raises:
            LMCacheError: The address is taken; says by whom.
            PluginError: A required plugin could not say what it subscribes to or measures.
        """
        self._control.claim()
        try:
            self._populating.start()
            self.host.start()
        except BaseException:
            self._populating.stop()
            self._control.stop()
            raise
        self._control.start()

    def drain(self) -> None:
        """Take no new session and no new work; what is under way goes on. `stop` follows."""
        self._draining = True
        self._control.drain()

    def stop(self) -> None:
        """End the sessions, write what waits for at most ``server_drain_secs``, send the last telemetry."""
        self.drain()
        self.host.storage.local.lend_no_more()  # a client that is frozen in a copy goes on with it later
        self._control.stop(min(_COMMITS_S, self._values.server_drain_secs))
        self._populating.stop()
        self.host.stop(self._values.server_drain_secs)

    def __enter__(self) -> CacheServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def status(self) -> dict[str, Any]:
        """Give everything that ``lmcachectl status`` shows, as plain JSON values. Asks no store. Any thread."""
        file = self.config.file
        control = self._control.status()
        document = describe_host(self.host)
        document["counters"] |= control.pop("counters", {})
        document["arena"] |= control.pop("arena", {})
        return {
            "product": PRODUCT,
            "version": __version__,
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self._started_s,
            "address": self.address,
            "config_file": None if file is None else str(file),
            "draining": self._draining,
            **document,
            **control,
        }

    def _is_healthy(self) -> bool:
        return not self._populating.failure and self.health.is_healthy()

    def _reason(self) -> str:
        return self._populating.failure or self.health.report().reason

    def _open(self, layout: KVLayout, wish: Register) -> LocalAccess:
        """See the tiers with the chunks of one model.

        Raises:
            LayoutError: The arena cannot hold one chunk of it.
        """
        chunk_format = ChunkFormat.of(
            layout,
            model_name=wish.model_name,
            world_size=wish.world_size,
            ranks=wish.ranks,
            chunk_tokens=nearest_chunk_tokens(self._values.chunk_size, wish.block_tokens),
            save_unfull_chunk=self._values.save_unfull_chunk,
        )
        capacity_bytes = self.host.storage.local.arena.capacity_bytes
        frame_bytes = chunk_format.codec.frame_bytes
        if frame_bytes > capacity_bytes:
            raise LayoutError(
                f"kv layout: one chunk of {chunk_format.chunk_tokens} tokens has {frame_bytes} bytes "
                f"and the server's memory {capacity_bytes}; raise max_local_cpu_size or lower chunk_size"
            )
        return LocalAccess(
            self.host.storage,
            chunk_format,
            is_healthy=self._is_healthy,
            journal=self.host.journal,
            metrics=self.host.metrics,
            loaders=self.host.loaders,
            engine_id=f"{wish.model_name}@{wish.ranks[0]}",
            counts_tokens=0 in wish.ranks,
        )


class _Populating:
    """The thread that gives the arena its pages while the server already serves.

    Args:
        arena: Shared memory.
        on_failure: Told when the system has not enough of it.

    Attributes:
        failure: ``""``, or one sentence why the arena must not be used: whoever touched a page that the system
            does not have would be killed, and that would be an engine.
    """

    def __init__(self, arena: Arena, on_failure: Callable[[], None]) -> None:
        self.failure = ""
        self._arena = arena
        self._on_failure = on_failure
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lmcache-arena-pages", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the slice under way."""
        self._stopped.set()

    def threads(self) -> Sequence[ThreadReport]:
        """Tell of the thread where it failed; one that has done its work is none to look at."""
        if not self.failure:
            return ()
        name, level = self._thread.name, ThreadLevel.CRITICAL.value
        return (ThreadReport(name=name, level=level, is_alive=False, silent_s=0, interval_s=0, reason=self.failure),)

    def _run(self) -> None:
        try:
            self._arena.populate(self._stopped.is_set)
        except OSError as error:
            self.failure = (
                f"the system has not {self._arena.capacity_bytes} bytes of memory for the arena ({error.strerror}); "
                "lower max_local_cpu_size"
            )
            log.error("%s; nothing is served, as copies would end the engines", self.failure)  # noqa: TRY400 - it says it all
            self._on_failure()
