"""What stands where a fallback policy should be that could not be made."""

from __future__ import annotations

from typing import ClassVar

from lmcache_core.contracts.control import StorageControl
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.errors import PluginError


class UnmadePolicy(FallbackPolicy):
    """Cannot be engaged, and says why: while a check fails that chose it, everything is recomputed.

    Args:
        error: Why the policy could not be made.
    """

    name: ClassVar[str] = "unmade"
    keeps_serving: ClassVar[bool] = False

    def __init__(self, error: PluginError) -> None:
        self._plugin, self._origin, self._reason = error.plugin, error.origin, error.reason

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Say why not."""
        del check, storage
        raise PluginError(plugin=self._plugin, origin=self._origin, reason=self._reason)

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Nothing was engaged."""
