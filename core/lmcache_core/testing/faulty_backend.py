"""A store around a store, that fails as told."""

from __future__ import annotations

from collections.abc import Sequence

from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.storage import BackendUsage, Frame, LoadResult, StorageBackend
from lmcache_core.errors import BackendError
from lmcache_core.testing.call_faults import Call, LoadCorruption, LoadFailure, LoadMiss, LoadTruncation, StoreCut
from lmcache_core.testing.call_switch import CallSwitch, Meeting


class FaultyBackend(StorageBackend):
    """Passes calls on to a store, and harms them as `faults` says. Safe from any thread.

    Without faults it is the store.

    Args:
        backend: The store; `close` closes it.
        seed: Decides what has a probability, and which byte is wrong.

    Attributes:
        faults: What is in force: `apply`, `clear`, `schedule`; what happened: `statistics`.

    Example:
        >>> store = FaultyBackend(MyStore(), seed=7)
        >>> store.faults.apply(CallHang(calls=Call.LOAD), CallError(BackendFullError, calls=Call.STORE))
        >>> store.faults.clear()
    """

    def __init__(self, backend: StorageBackend, *, seed: int = 0) -> None:
        self._backend = backend
        self.faults = CallSwitch(seed)

    def contains(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Ask the store, unless a fault of the call comes before, as in all calls."""
        self.faults.meet(Call.CONTAINS)
        return self._backend.contains(keys, deadline=deadline)

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, deadline: float) -> list[LoadResult]:
        """Load, and harm single chunks."""
        meeting = self.faults.meet(Call.LOAD)
        lost = [_lose(meeting) for _ in keys]
        asked = [place for place, result in enumerate(lost) if result is None]
        found = iter(
            self._backend.load_into([keys[n] for n in asked], [outs[n] for n in asked], deadline=deadline)
            if asked
            else ()
        )
        results = [next(found) if result is None else result for result in lost]
        for place in asked:
            if results[place] is LoadResult.HIT:
                _spoil(outs[place], meeting)
        return results

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, deadline: float) -> None:
        """Store, or the first chunks only."""
        cut = self.faults.meet(Call.STORE).happens(StoreCut)
        stored = items if cut is None else items[: cut.chunks]
        if stored:
            self._backend.store(stored, deadline=deadline)
        if cut is not None:
            raise BackendError(f"the faulty store was told to stop after {cut.chunks} chunk(s)")

    def delete(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Delete."""
        self.faults.meet(Call.DELETE)
        return self._backend.delete(keys, deadline=deadline)

    def ping(self, *, deadline: float) -> None:
        """Ping."""
        self.faults.meet(Call.PING)
        self._backend.ping(deadline=deadline)

    def usage(self) -> BackendUsage:
        """Tell the store's; never harmed."""
        return self._backend.usage()

    def clear(self, *, deadline: float) -> int | None:
        """Remove the store's chunks; never harmed. Faults are cleared with ``faults.clear()``."""
        return self._backend.clear(deadline=deadline)

    def close(self) -> None:
        """Let everything that hangs go on, and close the store."""
        self.faults.clear()
        self._backend.close()


def _lose(meeting: Meeting) -> LoadResult | None:
    """Decide for one chunk whether the store is asked for it at all."""
    if meeting.happens(LoadMiss) is not None:
        return LoadResult.MISS
    return LoadResult.FAILED if meeting.happens(LoadFailure) is not None else None


def _spoil(out: memoryview, meeting: Meeting) -> None:
    data = out.cast("B")
    if meeting.happens(LoadCorruption) is not None:
        data[meeting.draw.randrange(len(data))] ^= meeting.draw.randrange(1, 256)
    truncation = meeting.happens(LoadTruncation)
    if truncation is not None:
        kept_bytes = int(len(data) * truncation.share)
        data[kept_bytes:] = bytes(len(data) - kept_bytes)
