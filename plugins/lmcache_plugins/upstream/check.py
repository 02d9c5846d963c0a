"""The health checks of this project's plugins, as LMCache's monitor sees them."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from typing import Any

from lmcache.v1.exceptions import IrrecoverableException
from lmcache.v1.health_monitor.base import HealthCheck as UpstreamHealthCheck
from lmcache.v1.health_monitor.constants import FallbackPolicy

from lmcache_core import HostedCheck, HostedVerdict, LMCacheError, open_checks
from lmcache_plugins.upstream.absence import AbsentHereError
from lmcache_plugins.upstream.configured import read_configuration
from lmcache_plugins.upstream.policy import translate
from lmcache_plugins.upstream.view import LMCacheView

log = logging.getLogger(__name__)


class PluginHealthCheck(UpstreamHealthCheck):  # type: ignore[misc] # LMCache is not where mypy runs
    """One check of a plugin.

    LMCache runs all checks one after the other: this one keeps the others waiting for its timeout at most,
    and runs on a thread of its own, which may hang.

    Args:
        hosted: The check.
        name: Unique in LMCache's monitor.
        backends: Names of LMCache's backends.
    """

    def __init__(self, hosted: HostedCheck, name: str, backends: Collection[str]) -> None:
        self._hosted = hosted
        self._name = name
        self._backends = backends
        self._left_out = False
        self._was_healthy = True
        self._ladder: tuple[str, ...] = ()

    @classmethod
    def create(cls, manager: Any) -> list[UpstreamHealthCheck]:
        """Make the checks of all plugins; none, and a line in the log, where the configuration is wrong."""
        try:
            loaded = read_configuration(os.environ)
            view = LMCacheView(manager, loaded)
            hosted, left_out = open_checks(loaded, view)
        except LMCacheError as error:
            log.error("lmcache-core's checks do not run inside lmcache: %s", error)  # noqa: TRY400 - a sentence for users
            return []
        taken = {f"RemoteBackendHealthCheck({tier.upstream_url})" for tier in view.tiers}
        checks = [
            cls(one, f"{one.name} of lmcache-core" if one.name in taken else one.name, view.backends) for one in hosted
        ]
        _say(checks, left_out)
        return list(checks)

    def name(self) -> str:
        """The check's own name; told apart where LMCache has a check of that name."""
        return self._name

    def check(self) -> bool:
        """Run it where it is due; True unless it is down."""
        verdict = self._hosted.ask()
        if isinstance(verdict.error, AbsentHereError):
            log.warning("health check %s of plugin %r is left out: %s", self._name, self._hosted.plugin, verdict.error)
            self._left_out = True
            return True
        self._tell(verdict)
        if verdict.irrecoverable and not verdict.healthy:
            raise IrrecoverableException(f"{self._name}: {verdict.reason}")
        return verdict.healthy

    @property
    def fallback_policy(self) -> FallbackPolicy:
        """The first of its policies that LMCache knows, else recompute."""
        policy, reason = translate(self._hosted.ladder, self._hosted.backend, self._backends)
        if reason and self._ladder != self._hosted.ladder:
            log.warning("health check %s falls back to %r: %s", self._name, policy, reason)
        self._ladder = self._hosted.ladder
        return FallbackPolicy(policy)

    def should_skip(self) -> bool:
        """Whether it turned out to need what LMCache does not have; a check that skips itself just passes."""
        return self._left_out

    def get_bypass_backend_name(self) -> str | None:
        """The backend to leave out under ``local_cpu``."""
        return self._hosted.backend

    def _tell(self, verdict: HostedVerdict) -> None:
        if verdict.healthy == self._was_healthy:
            return
        self._was_healthy = verdict.healthy
        if verdict.healthy:
            log.info("health check %s of plugin %r passes again", self._name, self._hosted.plugin)
        else:
            log.warning("health check %s of plugin %r failed: %s", self._name, self._hosted.plugin, verdict.reason)


def _say(checks: Collection[PluginHealthCheck], left_out: Mapping[str, str]) -> None:
    names = ", ".join(check.name() for check in checks) or "none"
    without = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
    if without:
        log.warning("lmcache-core's checks inside lmcache: %s; left out: %s", names, without)
    else:
        log.info("lmcache-core's checks inside lmcache: %s", names)
