"""The connector's counts as Prometheus counters, in whatever registry vLLM has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmcache_plugins.vllm.tally import FAMILIES, LABELS


class Exposed:
    """One counter a family, with vLLM's labels of each engine.

    Args:
        make_counter: vLLM's counter class.
        labelnames: vLLM's.
        values_by_engine: Their values, by the engine's index.
    """

    def __init__(
        self,
        make_counter: Callable[..., Any],
        labelnames: Sequence[str],
        values_by_engine: Mapping[int, Sequence[object]],
    ) -> None:
        self._values = values_by_engine
        self._counters = {
            family: make_counter(
                name=f"lmcache:connector_{family}",
                documentation=text,
                labelnames=[*labelnames, *([LABELS[family]] if family in LABELS else [])],
            )
            for family, text in FAMILIES.items()
        }
        for engine in values_by_engine:  # a family without a label is there from the start, at 0
            self.add({family: 0 for family in FAMILIES if family not in LABELS}, engine)

    def add(self, counts: Mapping[str, float], engine: int) -> None:
        """Add a report's counts; names that are not known are left out."""
        for name, count in counts.items():
            family, _, label = name.partition(":")
            counter = self._counters.get(family)
            if counter is not None:
                counter.labels(*self._values[engine], *([label] if family in LABELS else [])).inc(count)
