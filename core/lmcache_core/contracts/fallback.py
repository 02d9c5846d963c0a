"""What to do while a check fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from lmcache_core.contracts.control import StorageControl
from lmcache_core.contracts.health import BOTH_SIDES, HealthCheck


class FallbackPolicy(ABC):
    """One way to go on while a check fails; chosen by `name` in the configuration.

    `release` undoes exactly what `engage` did for the same check, whatever an operator changed in between.
    Both are called one at a time for all checks, not always on one thread, and must not block: all checks wait
    for them. A call that takes longer than 2 s counts as failed, so that everything is recomputed, until it returns.
    """

    name: ClassVar[str]
    """As the configuration writes it: lower-case letters, digits and underscores."""

    keeps_serving: ClassVar[bool]
    """False: the engine recomputes everything while the check fails. True: other tiers go on."""

    answers: ClassVar[frozenset[str]] = BOTH_SIDES
    """Which failing sides of a backend it helps with. A ladder goes on where it does not help."""

    @abstractmethod
    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Step aside for a check that has just failed."""

    @abstractmethod
    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Undo `engage`; the check passes again."""

    def objection(self, check: HealthCheck) -> str | None:
        """Say why this policy cannot serve a check, as one sentence; None if it can.

        Asked at start-up: a policy that could do nothing must not look like protection.
        """
        del check
        return None
