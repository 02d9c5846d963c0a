"""What other programs ask a cache instance: HTTP pages and the gRPC health service, as the configuration has them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lmcache_core.config.model import CoreConfig
from lmcache_core.contracts.push import PushHealthCheck
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.ops.access import AccessToken
from lmcache_core.ops.grpc_server import GrpcHealthServer
from lmcache_core.ops.override_desk import OverrideDesk
from lmcache_core.ops.oversight import Oversight
from lmcache_core.ops.pages import Pages
from lmcache_core.ops.probes import Probes
from lmcache_core.ops.push import PushDesk
from lmcache_core.ops.server import OpsServer
from lmcache_core.ops.services import Services
from lmcache_core.threads import PeriodicThreadRegistry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fronts:
    """The servers of one cache instance.

    Attributes:
        http: None where ``internal_api_server_enabled`` is false.
        grpc: None where ``internal_grpc_port`` is left out.
        oversight: Publishes the token of the HTTP pages.
    """

    http: OpsServer | None
    grpc: GrpcHealthServer | None
    oversight: Oversight

    def start(self) -> None:
        """Serve; a port that cannot be had is one warning."""
        if self.http is not None:
            self.http.start()
            self.oversight.publish_token(self.http.address)
        if self.grpc is not None:
            self.grpc.start()

    def wake(self) -> None:
        """Health has changed: tell those who watch. Cheap; any thread."""
        if self.grpc is not None:
            self.grpc.wake()

    def stop(self) -> None:
        """Stop serving."""
        if self.grpc is not None:
            self.grpc.stop()
        if self.http is not None:
            self.http.stop()


def build_fronts(
    values: CoreConfig,
    *,
    monitor: HealthMonitor,
    metrics: CacheMetrics,
    threads: PeriodicThreadRegistry,
    oversight: Oversight,
    backends: tuple[str, ...],
    rank: int,
) -> Fronts:
    """Build the servers that the configuration names; opens no port.

    Args:
        values: The configuration.
        monitor: Whose verdict they tell.
        metrics: What ``/metrics`` shows.
        threads: Of this instance.
        oversight: Its history, overrides and token.
        backends: Names of all tiers.
        rank: Added to every port but 0.

    Raises:
        ConfigError: The extra ``http`` or ``grpc`` is not installed; says how to install it.
    """
    probes = Probes(monitor, values.readiness)
    http: OpsServer | None = None
    grpc: GrpcHealthServer | None = None
    if values.internal_api_server_enabled:
        access = AccessToken(oversight.token.token)
        http = OpsServer(
            Pages(monitor, metrics, threads, probes, oversight.history),
            host=values.internal_api_server_host,
            port=_port(values.internal_api_server_port_start, rank),
            actions=[*PushDesk(monitor, access).actions(), *OverrideDesk(oversight.overrides, access).actions()],
        )
    else:
        _warn_of_deaf_checks(monitor)
    if values.internal_grpc_port is not None:
        grpc = GrpcHealthServer(
            Services(monitor, probes, backends),
            host=values.internal_api_server_host,
            port=_port(values.internal_grpc_port, rank),
            threads=threads,
        )
    return Fronts(http, grpc, oversight)


def _warn_of_deaf_checks(monitor: HealthMonitor) -> None:
    deaf = [repr(name) for name, check in monitor.named_checks().items() if isinstance(check, PushHealthCheck)]
    if deaf:
        log.warning(
            "health checks %s take reports over HTTP and no report can arrive: set internal_api_server_enabled = true",
            ", ".join(deaf),
        )


def _port(port: int, rank: int) -> int:
    return port + rank if port else 0
