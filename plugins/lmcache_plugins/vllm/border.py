"""The border to vLLM: nothing that goes wrong in a hook passes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from lmcache_plugins.vllm.tally import Tally

log = logging.getLogger(__name__)

T = TypeVar("T")


class Border:
    """Calls the connector on behalf of vLLM's hooks. Any thread.

    Args:
        side: ``scheduler`` or ``worker``, for the log.
        tally: Counts ``hook_errors``.
    """

    def __init__(self, side: str, tally: Tally) -> None:
        self._side = side
        self._tally = tally
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()

    def call(self, hook: str, action: Callable[[], T], neutral: T) -> T:
        """Give what the action gives; after an error, which is counted and logged once a kind, the neutral value."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - vLLM ends the engine for an error of a connector
            self._tell(hook, error)
            return neutral

    def _tell(self, hook: str, error: Exception) -> None:
        self._tally.add("hook_errors", label=hook)
        kind = (hook, type(error).__name__)
        with self._lock:
            if kind in self._told:
                return
            self._told.add(kind)
        log.error(
            "lmcache-core, %s side: %s failed and is answered with a no-op, so vLLM computes instead; "
            "further errors of this kind are only counted in lmcache:connector_hook_errors",
            self._side,
            hook,
            exc_info=error,
        )
