"""Loads under way: every order ends, with or without its blocks."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lmcache_plugins.vllm.records import LoadOrder

log = logging.getLogger(__name__)


class Ended(NamedTuple):
    """Loads that have ended.

    Attributes:
        done: Requests, of all of them.
        bad_blocks: Blocks that stayed empty; none where requests are recomputed whole.
        failed: Requests of those that left any empty.
    """

    done: set[str]
    bad_blocks: set[int]
    failed: set[str]


_STOP_S = 15.0
"""Longest that closing waits for the load under way."""


class LoadDesk:
    """Carries load orders out, in a thread of its own or at once. Any thread.

    An order that fails, however it fails, is reported like any other, with the blocks that it left empty:
    vLLM would wait for it for ever, or use what happens to be in the blocks.

    Args:
        load: Fills an order's blocks; gives how many of its blocks, from the first, are filled.
        threaded: Whether orders are carried out beside the steps.
        whole: Whether a request is of no use in part, as windowed layers have no blocks for what comes earlier.
    """

    def __init__(self, load: Callable[[LoadOrder], int], *, threaded: bool, whole: bool = False) -> None:
        self._load = load
        self._whole = whole
        self._orders: queue.SimpleQueue[LoadOrder | None] = queue.SimpleQueue()
        self._ended = threading.Condition()
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._open: set[str] = set()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._work, name="lmcache-vllm-load", daemon=True)
            self._thread.start()

    def order(self, orders: Sequence[LoadOrder]) -> None:
        """Take orders; carried out when this returns where there is no thread."""
        for one in orders:
            with self._ended:
                self._open.add(one.request_id)
            if self._thread is None:
                self._carry_out(one)
            else:
                self._orders.put(one)

    def refuse(self, orders: Sequence[LoadOrder]) -> None:
        """End orders, but for those that were taken, as loads that filled nothing."""
        with self._ended:
            for one in orders:
                if one.request_id not in self._open | self._done:
                    self._end(one, 0)

    def take(self, wait_s: float = 0.0) -> Ended:
        """Give the loads that have ended since the last call.

        Args:
            wait_s: How long to wait for one to end, if any is under way.
        """
        with self._ended:
            if wait_s and self._open and not self._done:
                self._ended.wait(wait_s)
            done, self._done = self._done, set()
            bad_blocks, self._bad_blocks = self._bad_blocks, set()
            failed, self._failed = self._failed, set()
        return Ended(done, bad_blocks, failed)

    def close(self) -> None:
        """End the thread after the load under way."""
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join(_STOP_S)

    def _work(self) -> None:
        while (one := self._orders.get()) is not None:
            self._carry_out(one)

    def _carry_out(self, order: LoadOrder) -> None:
        filled = 0
        try:
            filled = self._load(order)
        except Exception:  # the border of one order: vLLM waits for its end
            log.exception("lmcache-core: a load of %d blocks failed; vllm computes them", order.blocks)
        finally:
            with self._ended:
                self._open.discard(order.request_id)
                self._end(order, filled)

    def _end(self, order: LoadOrder, filled: int) -> None:
        first_bad = max(filled, order.first_block)
        self._done.add(order.request_id)
        if not self._whole:
            self._bad_blocks.update(*(ids[first_bad:] for ids in order.block_ids))
        if first_bad < order.blocks:
            self._failed.add(order.request_id)
        self._ended.notify_all()
