"""Leave the failed backend out, or one side of it, and touch nothing else."""

from __future__ import annotations

from typing import ClassVar

from lmcache_core import FallbackPolicy, HealthCheck, StorageControl
from lmcache_plugins.fallback.left_out import LeftOut

_READS = frozenset({"reads"})
_WRITES = frozenset({"writes"})


class BypassPolicy(FallbackPolicy):
    """The failed backend is left out; the other tiers go on as they are configured.

    Unlike `local_cpu` it switches nothing on: with ``local_cpu = false`` and no other store the cache serves
    nothing, which the verdict says.
    """

    name: ClassVar[str] = "bypass"
    keeps_serving: ClassVar[bool] = True
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = True

    def __init__(self) -> None:
        self._left_out = LeftOut(self.name)

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Leave the check's backend out."""
        self._left_out.hold(check, storage, reads=self.reads, writes=self.writes)

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Let go of it."""
        self._left_out.release(check, storage)

    def objection(self, check: HealthCheck) -> str | None:
        """Refuse a check that names no backend: there would be nothing to leave out."""
        return self._left_out.objection(check)


class ReadOnlyPolicy(BypassPolicy):
    """The failed backend is read and no longer written. Helps with failing writes only."""

    name: ClassVar[str] = "read_only"
    answers: ClassVar[frozenset[str]] = _WRITES
    reads: ClassVar[bool] = False


class WriteOnlyPolicy(BypassPolicy):
    """The failed backend is written and no longer read. Helps with failing reads only."""

    name: ClassVar[str] = "write_only"
    answers: ClassVar[frozenset[str]] = _READS
    writes: ClassVar[bool] = False
