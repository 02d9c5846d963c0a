"""A put-get-compare-delete round trip with a key that nobody else uses."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from lmcache_core import (
    BackendError,
    BackendFullError,
    BackendTimeoutError,
    CheckResult,
    ChunkKey,
    KeyNamespace,
    LoadResult,
    Tier,
)

log = logging.getLogger(__name__)

_PAYLOAD_BYTES = 4096
_READS = frozenset({"reads"})
_WRITES = frozenset({"writes"})
_BOTH = _READS | _WRITES
_UNREADABLE = "could not read one value"
_NAMESPACE = KeyNamespace(
    model_name="lmcache-probe", world_size=1, rank=0, dtype="bytes", layout="probe", chunk_tokens=1
)


class RoundTripProbe:
    """Proves that a store keeps and gives back what it is handed.

    Key and payload are random and this instance's own, so that two instances never compare each
    other's bytes. They stay the same for the instance's life: a store that vanished in mid-probe keeps
    at most one value, and the next round trip begins by deleting it (a store may skip the writing of a
    key that is there, which would prove nothing).

    Args:
        tier: The store.
        random_bytes: Source of key and payload.
    """

    def __init__(self, tier: Tier, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._tier = tier
        self._payload = random_bytes(_PAYLOAD_BYTES)
        self._clean = True
        # One namespace and one first byte for all: a file store leaves one empty folder behind, not one an instance.
        self._key = ChunkKey(_NAMESPACE, b"\0" + random_bytes(31))

    def run(self, timeout_s: float) -> CheckResult:
        """Make one round trip; each of its steps may take `timeout_s`."""
        try:
            if not self._clean:
                self._delete(timeout_s)
            self._clean = False
            reservation = self._store(timeout_s)
        except BackendTimeoutError as error:
            return CheckResult(healthy=False, reason=str(error))
        except BackendError as error:
            return CheckResult(healthy=False, reason=str(error), failing=self._side_of_writes(timeout_s))
        try:
            problem = self._load_problem(timeout_s, stored=not reservation)
        except BackendError as error:
            return CheckResult(healthy=False, reason=str(error), failing=self._side_of_reads(timeout_s))
        try:
            self._delete(timeout_s)
        except BackendError as error:
            return CheckResult(healthy=False, reason=problem or str(error))
        self._clean = True
        if problem:
            reason = f"{self._tier.name} ({self._tier.url}): {problem}"
            return CheckResult(healthy=False, reason=reason, failing=_READS if problem == _UNREADABLE else _BOTH)
        return CheckResult(healthy=True, degraded=bool(reservation), reason=reservation)

    def _side_of_writes(self, timeout_s: float) -> frozenset[str]:
        """The store refused a write: ask whether it can be read all the same."""
        out = memoryview(bytearray(_PAYLOAD_BYTES))
        try:
            (result,) = self._tier.load_into([self._key], [out], timeout_s=timeout_s)
        except BackendError:
            return _BOTH
        return _BOTH if result is LoadResult.FAILED else _WRITES

    def _side_of_reads(self, timeout_s: float) -> frozenset[str]:
        """The store took a value and did not give it: it takes writes where it lets the value be deleted."""
        return _READS if self._delete_quietly(timeout_s) else _BOTH

    def _store(self, timeout_s: float) -> str:
        try:
            self._tier.store([(self._key, memoryview(self._payload))], timeout_s=timeout_s)
        except BackendFullError as error:
            return f"takes no writes, reads go on: {error}"
        return ""

    def _load_problem(self, timeout_s: float, *, stored: bool) -> str:
        out = bytearray(_PAYLOAD_BYTES)  # fresh each time: a store that answered too late may still write into the last
        (result,) = self._tier.load_into([self._key], [memoryview(out)], timeout_s=timeout_s)
        if result is LoadResult.FAILED:
            return _UNREADABLE
        if not stored:
            return ""  # nothing to compare; the store was asked and answered
        if result is LoadResult.MISS:
            return "gives a miss for what it has just stored"
        if result is LoadResult.CORRUPT or out != self._payload:
            return "gives back other bytes than it was handed"
        return ""

    def _delete(self, timeout_s: float) -> None:
        self._tier.delete([self._key], timeout_s=timeout_s)

    def _delete_quietly(self, timeout_s: float) -> bool:
        try:
            self._delete(timeout_s)
        except BackendError:
            log.debug("the probe key stays in %s until the next round trip", self._tier.url)
            return False
        return True
