"""What a policy that is called on the monitor's own thread sees of a check."""

from __future__ import annotations

from typing import NoReturn

from lmcache_core.contracts.control import CacheView
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.health.terms import CheckTerms


class StandIn(HealthCheck):
    """Says of a check what that said last of itself, and runs no code of its plugin's, which may hang.

    Args:
        name: The check's.
        terms: As read in its last run.
    """

    def __init__(self, name: str, terms: CheckTerms) -> None:
        self._name = name
        self._terms = terms

    def name(self) -> str:
        """Give the check's name."""
        return self._name

    def get_bypass_backend_name(self) -> str | None:
        """Name the check's backend."""
        return self._terms.backend

    @property
    def fallback_policy(self) -> tuple[str, ...]:
        """Names of the check's policies."""
        return self._terms.ladder

    def check(self) -> NoReturn:
        """Refuse: the monitor alone runs a check."""
        raise NotImplementedError(f"health check {self._name!r} is run by the monitor alone")

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make none: the monitor makes them."""
        del manager
        return []
