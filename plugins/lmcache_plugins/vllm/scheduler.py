"""The scheduler's side: which tokens are looked up, loaded and kept, and when a promise is given up."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lmcache_plugins.vllm.lookups import Lookups, Pending
from lmcache_plugins.vllm.options import ConnectorOptions
from lmcache_plugins.vllm.records import BlockIds, LoadOrder, RequestView, SaveOrder, Scheduled, Tokens
from lmcache_plugins.vllm.room import Room
from lmcache_plugins.vllm.tally import Tally

log = logging.getLogger(__name__)

_GRACE_S = 0.002
"""How long a step waits for a lookup: one in memory answers well within it, and a round of the scheduler is saved."""

_MISS_KEPT_S = 1.0
"""How long a request that waits for blocks is not looked up again after a miss."""

_NO_TOKENS: Tokens = np.empty(0, dtype=np.int64)

Match = tuple[int | None, bool]


@dataclass
class _Tracked:
    view: RequestView
    era: str
    block_ids: list[list[int]] = field(default_factory=list)
    stored_tokens: int = 0
    seen_tokens: int = 0
    accounted_tokens: int = 0
    doubted_tokens: int = 0
    found_tokens: int | None = None
    given_tokens: int = 0
    lookup: Pending | None = None
    missed_at_s: float = -_MISS_KEPT_S
    asked_tokens: int = 0
    loaded_at: int = -1


class SchedulerSide:
    """Plans loads and saves. Called by vLLM's scheduler alone, one call at a time.

    A request is loaded at most once an admission, so that a load that keeps failing ends in computing.

    Args:
        lookups: The cache, on behalf of every rank.
        block_tokens: vLLM's block size.
        options: The connector's.
        tally: Counts.
        windows: Tokens that each group of layers attends to, 0 for all.
        blocks: In vLLM's pool.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        lookups: Lookups,
        *,
        block_tokens: int,
        options: ConnectorOptions,
        tally: Tally,
        windows: Sequence[int] = (0,),
        blocks: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lookups = lookups
        self._window_tokens = min((window for window in windows if window), default=0)
        room = Room(blocks=blocks, block_tokens=block_tokens, groups=len(windows))
        self._room = room if self._window_tokens else None
        self._block_tokens = block_tokens
        self._options = options
        self._tally = tally
        self._clock = clock
        self._tracked: dict[str, _Tracked] = {}
        self._loads: list[LoadOrder] = []
        self._told_refusals: set[str] = set()
        self._era = ""

    @property
    def requests(self) -> int:
        """Requests that are followed now."""
        return len(self._tracked)

    # -- before a request is scheduled ----------------------------------------

    def match(self, view: RequestView, computed_tokens: int) -> Match:
        """Say how many tokens behind those already computed can be loaded, and whether beside the steps.

        None instead of a number: ask again in the next step.
        """
        tracked = self._track(view)
        tracked.accounted_tokens = computed_tokens
        limit = self._limit(len(view.tokens))
        # What is behind the last whole block before the last token vLLM computes in the step that it takes anyway.
        needed = min(limit, (len(view.tokens) - 1) // self._block_tokens * self._block_tokens)
        wanted = view.reads and not view.refusal and self._options.loads and needed > computed_tokens
        if not wanted or tracked.loaded_at == view.preemptions:
            self._give_up(tracked)
            return 0, False
        found = self._found(tracked)
        if found is None:
            return None, False
        tracked.found_tokens = found
        tracked.asked_tokens = computed_tokens
        new_tokens = min(found, limit) - computed_tokens
        if new_tokens <= 0:
            if tracked.lookup is not None:
                tracked.missed_at_s = self._clock()
            self._give_up(tracked)
            return 0, False
        if self._room is not None and not self._room.has(len(view.tokens)):
            return None, False
        return new_tokens, self._options.async_load

    def allocated(self, request_id: str, block_ids: BlockIds, external_tokens: int) -> bool:
        """Order the load of so many tokens behind those computed; 0 gives up what was promised.

        Returns:
            False for a request that is not known; see `doom`.
        """
        tracked = self._tracked.get(request_id)
        if tracked is None:
            return False
        if not external_tokens:
            self._give_up(tracked)
            return True
        view = tracked.view
        tracked.lookup = None  # what it promised is the load's now
        tracked.loaded_at = view.preemptions
        tracked.accounted_tokens = tracked.asked_tokens + external_tokens
        order = self._load_order(tracked, block_ids, external_tokens)
        if self._room is not None:
            self._room.take(request_id, len(view.tokens))
        self._tally.add("hit_tokens", external_tokens)
        self._loads.append(order)  # last: after an error before it, the caller dooms the request instead
        return True

    def doom(self, request_id: str, block_ids: BlockIds) -> None:
        """Have blocks reported as not loaded that vLLM takes for promised: it must neither use them nor wait."""
        order = LoadOrder(request_id=request_id, tokens=_NO_TOKENS, block_ids=tuple(block_ids), first_block=0)
        if self._room is not None:
            self._room.take(request_id, order.blocks * self._block_tokens)
        self._loads.append(order)

    # -- each step ------------------------------------------------------------

    def take_loads(self) -> tuple[LoadOrder, ...]:
        """Give the loads ordered since the last call."""
        loads, self._loads = tuple(self._loads), []
        return loads

    def saves(self, scheduled: Sequence[Scheduled]) -> tuple[SaveOrder, ...]:
        """Give the saves of chunks that a step makes full."""
        chunk_tokens = self._lookups.chunk_tokens if self._options.saves else 0
        doubtful = self._is_doubtful(scheduled)
        orders = []
        for one in scheduled:
            if self._room is not None:
                self._room.leave(one.request_id)
            tracked = self._tracked.get(one.request_id)
            if tracked is not None and not tracked.view.refusal and tracked.era == self._era:
                _take_blocks(tracked, one)
                order = self._save(tracked, one, chunk_tokens, doubtful=doubtful) if chunk_tokens else None
                if order is not None:
                    orders.append(order)
        return tuple(orders)

    # -- the end --------------------------------------------------------------

    def finished(self, request_id: str) -> None:
        """Forget a request and give up what was promised to it."""
        self.forget((request_id,))

    def forget(self, request_ids: Iterable[str]) -> None:
        """Forget requests that have finished; those that are forgotten already are no error."""
        for request_id in request_ids:
            if self._room is not None:
                self._room.leave(request_id)
            tracked = self._tracked.pop(request_id, None)
            if tracked is not None:
                self._count_unkept(tracked, tracked.doubted_tokens)
                self._give_up(tracked)

    def reset(self) -> bool:
        """Drop what the cache holds, and begin an era: no request after this finds what was kept before it.

        So it may always be True, also where others share a tier or the cache was not reached. Requests under way are
        kept no further: their KV is of both eras.
        """
        self._era = f" since {uuid.uuid4().hex}"
        cleared = self._lookups.clear()
        left = ", ".join(one.backend for one in cleared if one.chunks < 0)
        if left or not cleared:
            log.warning(
                "lmcache-core: vllm reset its caches; what %s before that stays there, and this engine never finds it",
                f"{left} kept" if cleared else "the cache kept, which did not answer,",
            )
        return True

    # -- inside ---------------------------------------------------------------

    def _limit(self, tokens: int) -> int:
        """Most tokens of a request that may be loaded: one at least must be computed, to sample from.

        Beside the steps it may be loaded whole, its last block in part too: vLLM takes one token back itself when
        such a load has ended. Within a step it takes none back. For that one token a windowed layer would need what
        is just outside the window of the next: there the last token is left out at once.
        """
        if not self._options.async_load:
            return (tokens - 1) // self._block_tokens * self._block_tokens
        most_tokens = tokens - 1 if self._window_tokens else tokens
        if self._lookups.save_unfull_chunk:
            return most_tokens
        chunk_tokens = self._lookups.chunk_tokens or self._block_tokens
        return min(tokens // chunk_tokens * chunk_tokens, most_tokens)

    def _track(self, view: RequestView) -> _Tracked:
        tracked = self._tracked.get(view.request_id)
        if tracked is None:
            tracked = self._tracked[view.request_id] = _Tracked(view, self._era)
            if view.refusal:
                self._refuse(view.refusal)
        elif tracked.era != self._era:  # nothing of it was computed, or all of that was taken away
            self._give_up(tracked)
            tracked = self._tracked[view.request_id] = _Tracked(view, self._era)
        tracked.view = view
        return tracked

    def _refuse(self, reason: str) -> None:
        self._tally.add("refused_requests", label=reason)
        if reason not in self._told_refusals:
            self._told_refusals.add(reason)
            log.warning(
                "lmcache-core leaves requests with %s to vllm, as their tokens do not name their kv; "
                "further ones are only counted in lmcache:connector_refused_requests",
                reason,
            )

    def _found(self, tracked: _Tracked) -> int | None:
        if tracked.lookup is None:
            if self._clock() < tracked.missed_at_s + _MISS_KEPT_S:
                return 0
            view = tracked.view
            tokens = np.asarray(
                view.tokens[:], dtype=np.int64
            )  # a slice is a list: vLLM's own sequence is slow to walk
            tracked.lookup = self._lookups.lookup_async(
                tokens, salt=view.salt, variant=view.variant + self._era, request_id=view.request_id
            )
            self._tally.add("requested_tokens", len(tokens))
        pending = tracked.lookup
        if not pending.done():
            pending.result(_GRACE_S if self._options.async_lookup else None)
        if not pending.done():
            return None
        return pending.result(0.0)

    def _give_up(self, tracked: _Tracked) -> None:
        if tracked.lookup is not None:
            tracked.lookup.cancel()
            tracked.lookup = None

    def _load_order(self, tracked: _Tracked, block_ids: BlockIds, external_tokens: int) -> LoadOrder:
        view = tracked.view
        end_tokens = tracked.asked_tokens + external_tokens
        chunk_tokens = self._lookups.chunk_tokens or self._block_tokens
        whole_tokens = -(-end_tokens // chunk_tokens) * chunk_tokens
        return LoadOrder(
            request_id=view.request_id,
            tokens=np.asarray(view.tokens[:whole_tokens], dtype=np.int64),
            block_ids=_leading(block_ids, -(-end_tokens // self._block_tokens)),
            first_block=tracked.asked_tokens // self._block_tokens,
            salt=view.salt,
            variant=view.variant + self._era,
        )

    def _is_doubtful(self, scheduled: Sequence[Scheduled]) -> bool:
        """Whether a step's blocks are filled within it: by a load of ours, or by another connector beside this one.

        Only after the step vLLM knows whether all ranks have them. If not, it computes again what was computed on
        them, also by requests that share them.
        """
        return (bool(self._loads) and not self._options.async_load) or any(
            one.replaces
            and one.request_id in self._tracked
            and one.computed_tokens - self._tracked[one.request_id].accounted_tokens >= self._block_tokens
            for one in scheduled
        )

    def _save(self, tracked: _Tracked, one: Scheduled, chunk_tokens: int, *, doubtful: bool) -> SaveOrder | None:
        if one.computed_tokens < tracked.seen_tokens:  # preempted, or a load failed: what was planned may be lost
            tracked.stored_tokens = min(tracked.stored_tokens, one.computed_tokens)
        tracked.seen_tokens = one.computed_tokens
        view = tracked.view
        saved_tokens = self._full_tokens(view, one.computed_tokens + one.step_tokens, chunk_tokens)
        if doubtful:  # the next step keeps it
            tracked.doubted_tokens = saved_tokens
            saved_tokens = 0 if one.replaces else self._full_tokens(view, one.computed_tokens, chunk_tokens)
        if saved_tokens <= tracked.stored_tokens:
            return None
        first_block = self._first_held(one.computed_tokens)
        skipped_tokens = min(-(-first_block * self._block_tokens // chunk_tokens) * chunk_tokens, saved_tokens)
        self._count_unkept(tracked, skipped_tokens)
        tracked.stored_tokens = saved_tokens
        if skipped_tokens == saved_tokens:
            return None
        return SaveOrder(
            request_id=view.request_id,
            tokens=np.asarray(view.tokens[:saved_tokens], dtype=np.int64),
            block_ids=_leading(tracked.block_ids, -(-saved_tokens // self._block_tokens)),
            first_block=first_block,
            salt=view.salt,
            variant=view.variant + self._era,
        )

    def _full_tokens(self, view: RequestView, computed_tokens: int, chunk_tokens: int) -> int:
        """Give how many of a request's first tokens can be kept when so many are computed."""
        known = min(computed_tokens, len(view.tokens))
        if not self._options.save_generated:
            known = min(known, view.prompt_tokens)
        # The last token is computed in any case: a rest of one would save nothing.
        whole = known == view.prompt_tokens and known % chunk_tokens != 1 and self._lookups.save_unfull_chunk
        return known if whole else known // chunk_tokens * chunk_tokens

    def _count_unkept(self, tracked: _Tracked, end_tokens: int) -> None:
        unkept_tokens = end_tokens - max(tracked.stored_tokens, tracked.given_tokens)
        if unkept_tokens > 0:
            self._tally.add("unkept_tokens", unkept_tokens)

    def _first_held(self, computed_tokens: int) -> int:
        """Give the first block that windowed layers have not let go of before a step, as vLLM reckons it."""
        return max(0, computed_tokens - self._window_tokens + 1) // self._block_tokens if self._window_tokens else 0


def _take_blocks(tracked: _Tracked, one: Scheduled) -> None:
    if one.replaces:
        # What vLLM has itself is not known to be kept where the lookup did not find it.
        tracked.given_tokens = one.computed_tokens if tracked.found_tokens is None else tracked.found_tokens
    if one.replaces or not tracked.block_ids:
        tracked.block_ids = [list(ids) for ids in one.block_ids]
        return
    for ids, further in zip(tracked.block_ids, one.block_ids, strict=False):  # none at all stand for no further ones
        ids.extend(further)


def _leading(block_ids: BlockIds, blocks: int) -> BlockIds:
    return tuple(tuple(ids[:blocks]) for ids in block_ids)
