"""Knows a lookup that a scheduler has made before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

_LOOKUPS_KEPT = 1024
_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class _Lookup:
    chunks: int
    first: bytes
    last: bytes
    at_s: float


class RecentRequests:
    """Remembers the last lookups of requests, so that a retry is not taken for reuse.

    A scheduler that cannot place a request asks again at every step, and again with more tokens when
    it had pushed the request out while it ran. Same request id, same chunks, at most a minute after
    the last try: only chunks beyond the earlier ones are new.

    Args:
        kept: Lookups remembered.
        retry_s: Longest pause between two tries.
    """

    def __init__(self, kept: int = _LOOKUPS_KEPT, retry_s: float = _RETRY_S) -> None:
        self._kept = kept
        self._retry_s = retry_s
        self._seen: OrderedDict[str, _Lookup] = OrderedDict()

    def count_known(self, request_id: str, digests: Sequence[bytes], now_s: float) -> int:
        """Note a lookup; tell how many of its leading chunks an earlier try has shown.

        A request without an id is never known.
        """
        if not request_id or not digests:
            return 0
        before = self._seen.pop(request_id, None)
        known = 0 if before is None or now_s - before.at_s > self._retry_s else _shared(before, digests)
        if before is not None and known == len(digests):
            self._seen[request_id] = _Lookup(before.chunks, before.first, before.last, now_s)
        else:
            self._seen[request_id] = _Lookup(len(digests), digests[0], digests[-1], now_s)
        if len(self._seen) > self._kept:
            self._seen.popitem(last=False)
        return known


def _shared(before: _Lookup, digests: Sequence[bytes]) -> int:
    if len(digests) >= before.chunks:  # a digest stands for all tokens up to its end
        return before.chunks if digests[before.chunks - 1] == before.last else 0
    return len(digests) if digests[0] == before.first else 0
