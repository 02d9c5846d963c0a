"""The worker's side: carries orders out between vLLM's KV cache and the cache."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from lmcache_plugins.vllm.loads import Ended, LoadDesk
from lmcache_plugins.vllm.paged import PagedKV
from lmcache_plugins.vllm.records import LoadOrder, StepPlan
from lmcache_plugins.vllm.tally import Tally

log = logging.getLogger(__name__)

_IDLE_WAIT_S = 0.005
"""How long a step that computes nothing waits for a load; vLLM would only ask again at once."""


class Chunks(Protocol):
    """The part of a `KVCache` that the worker's side uses."""

    def store(
        self, tokens: Any, kv: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> int:
        """Keep full chunks behind the skipped tokens; give the tokens newly kept."""

    def retrieve(
        self, tokens: Any, out: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> Any:
        """Fill leading chunks; True for each token that is there."""

    def release(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> bool:
        """Give up what a lookup promised."""


class WorkerSide:
    """Loads and stores. Called by vLLM's worker, one call at a time.

    Attributes:
        desk: Where loads are carried out.

    Args:
        chunks: The cache; None where nothing is cached: then every load fails at once, and vLLM computes.
        block_tokens: vLLM's block size.
        threaded: Whether loads run beside the steps.
        tally: Counts.
        whole: Whether a load that falls short is of no use.
        clock: Seconds, for durations.
    """

    def __init__(
        self,
        chunks: Chunks | None,
        *,
        block_tokens: int,
        threaded: bool,
        tally: Tally,
        whole: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._chunks = chunks
        self._block_tokens = block_tokens
        self._threaded = threaded
        self._whole = whole
        self._tally = tally
        self._clock = clock
        self.desk = LoadDesk(self._load, threaded=threaded and chunks is not None, whole=whole)

    def start_loads(self, plan: StepPlan) -> bool:
        """Begin a step's loads, without a thread to their end; give True."""
        self.desk.order(plan.loads)
        return True

    def refuse(self, plan: StepPlan) -> None:
        """End the loads of a step that could not be begun, and give up what was promised for them."""
        self.desk.refuse(plan.loads)  # first: vLLM would wait for them for ever
        for order in plan.loads:
            self._give_up(order)

    def take_ended(self, plan: StepPlan) -> Ended:
        """Give the loads that have ended since the last call.

        A step that computes nothing waits a moment for a load under way.
        """
        return self.desk.take(_IDLE_WAIT_S if plan.idle and self._threaded else 0.0)

    def save(self, plan: StepPlan) -> None:
        """Keep the chunks that the step made full; complete when it returns."""
        if self._chunks is None or not plan.saves:
            return
        begin = self._clock()
        for order in plan.saves:
            kept_tokens = self._chunks.store(
                order.tokens,
                PagedKV(order.block_ids, tokens=len(order.tokens)),
                salt=order.salt,
                variant=order.variant,
                request_id=order.request_id,
                skip_tokens=order.first_block * self._block_tokens,
            )
            self._tally.add("stored_tokens", kept_tokens)
        self._tally.add("store_seconds", self._clock() - begin)

    def close(self) -> None:
        """End the thread."""
        self.desk.close()

    def _load(self, order: LoadOrder) -> int:
        wanted_tokens = order.blocks * self._block_tokens
        if len(order.tokens):
            wanted_tokens = min(wanted_tokens, len(order.tokens))
        first_token = order.first_block * self._block_tokens
        filled_blocks = covered_tokens = 0
        begin = self._clock()
        if self._chunks is not None and len(order.tokens):
            try:
                mask = self._chunks.retrieve(
                    order.tokens,
                    PagedKV(order.block_ids, order.first_block),
                    salt=order.salt,
                    variant=order.variant,
                    request_id=order.request_id,
                    skip_tokens=first_token,
                )
                covered_tokens = min(int(mask.sum()), wanted_tokens)
                filled_blocks = -(-covered_tokens // self._block_tokens)  # only a prompt's last one can be part full
            finally:
                if filled_blocks < order.blocks:  # a cache that is unhealthy keeps what the lookup promised
                    self._give_up(order)
        if self._whole and covered_tokens < wanted_tokens:
            covered_tokens = first_token
        loaded_tokens = max(0, covered_tokens - first_token)
        self._tally.add("load_seconds", self._clock() - begin)
        self._tally.add("loaded_tokens", loaded_tokens)
        self._tally.add("failed_tokens", wanted_tokens - first_token - loaded_tokens)
        return filled_blocks

    def _give_up(self, order: LoadOrder) -> None:
        if self._chunks is not None:
            self._chunks.release(order.tokens, salt=order.salt, variant=order.variant, request_id=order.request_id)
