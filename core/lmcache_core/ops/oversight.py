"""What people do to health and see of it, put together from the configuration: overrides, history, backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from lmcache_core.config.model import CoreConfig
from lmcache_core.contracts.report import BackendReport
from lmcache_core.health.expiry import OverrideExpiry
from lmcache_core.health.history import History
from lmcache_core.health.line_file import LineFile
from lmcache_core.health.overrides import Overrides
from lmcache_core.health.state_file import StateFile
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.ops.token import TokenFile
from lmcache_core.storage.breaker import BreakerReport
from lmcache_core.storage.manager import StorageManager
from lmcache_core.threads import PeriodicThreadRegistry


class Oversight:
    """Overrides and history of one instance, and what the monitor's report says of its backends.

    Args:
        values: The configuration.
        storage: The tiers.
        metrics: Where changes are counted.
        threads: Where the thread that ends overrides is entered.
        rank: Of several that share the configuration, which then have files of their own; None for one alone.

    Attributes:
        overrides: `overrides.add`, `overrides.drain`, `overrides.remove`, `overrides.active`.
        history: `history.latest`.
        token: What a client must send to change something over HTTP.
    """

    def __init__(
        self,
        values: CoreConfig,
        *,
        storage: StorageManager,
        metrics: CacheMetrics,
        threads: PeriodicThreadRegistry,
        rank: int | None = None,
    ) -> None:
        self._storage = storage
        self._wake: Callable[[], None] = lambda: None
        name = (values.lmcache_instance_id or "cache").replace("/", "_") + ("" if rank is None else f".rank-{rank}")
        folder = None if values.health_state_dir is None else Path(values.health_state_dir).expanduser()

        def lines(configured: str | None, default: Path | None) -> LineFile | None:
            path = default if configured is None else _of_rank(Path(configured).expanduser(), rank)
            return None if path is None else LineFile(path, metrics.health_file_errors.inc)

        self.history = History(metrics, lines(values.health_history_file, None))
        self.overrides = Overrides(
            storage=storage,
            history=self.history,
            metrics=metrics,
            state=None if folder is None else StateFile(folder / f"{name}.overrides.json"),
            audit=lines(values.health_audit_file, None if folder is None else folder / f"{name}.audit.jsonl"),
            on_change=self._changed,
        )
        configured = values.internal_api_server_token
        self.token = TokenFile("" if configured is None else configured.get_secret_value())
        self._expiry = OverrideExpiry(self.overrides, threads)
        for tier in storage.tiers:
            tier.listen_to_breaker(self._note_breaker)

    def backends(self) -> tuple[BackendReport, ...]:
        """Describe the stores behind tier 0; asks none of them."""
        return self.overrides.annotate(self._storage.describe())

    def start(self, wake: Callable[[], None]) -> None:
        """Put the overrides of an earlier process in force again; from here on each ends in time.

        Args:
            wake: Makes the monitor look at once; must not block.
        """
        self._wake = wake
        self.overrides.restore()
        self._expiry.start()

    def publish_token(self, address: str | None) -> None:
        """Let the command line find the token of the pages at this address; None while they are not served."""
        port = None if address is None else urlsplit(address).port
        if port is not None:
            self.token.publish(port)

    def stop(self) -> None:
        """Write what waits to be written. What is in force stays in the state file."""
        self.token.withdraw()
        self._expiry.stop()
        self.overrides.close()
        self.history.close()

    def _changed(self) -> None:
        self._expiry.wake()
        self._wake()

    def _note_breaker(self, name: str, report: BreakerReport) -> None:
        self.history.breaker_changed(name, state=report.state.value, reason=report.reason)


def _of_rank(path: Path, rank: int | None) -> Path:
    return path if rank is None else path.with_name(f"{path.stem}.rank-{rank}{path.suffix}")
