"""What tests do inside an engine's process: look at the connector's two sides, and break them."""

from __future__ import annotations

import random
from typing import Any

from lmcache_core import CacheManager


def _sides(llm: Any) -> tuple[Any, Any]:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return llm.llm_engine.engine_core.engine_core.scheduler.connector, get_kv_transfer_group()


def _manager() -> CacheManager:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    manager = get_kv_transfer_group()._cache.manager
    assert isinstance(manager, CacheManager)
    return manager


def metrics(llm: Any) -> dict[str, float]:
    """vLLM's counters and ours in its registry, by name; ours with a label as ``name{label}``."""
    from prometheus_client import REGISTRY

    found: dict[str, float] = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            label = sample.labels.get("hook") or sample.labels.get("reason")
            name = f"{sample.name}{{{label}}}" if label else sample.name
            found[name] = found.get(name, 0) + sample.value
    return found


def cache_metrics(llm: Any) -> dict[str, float]:
    """The cache's own counters, by name; those of its labels are added up."""
    found: dict[str, float] = {}
    for family in _manager().metrics.registry.collect():
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def page(llm: Any) -> str:
    """Where the cache's own pages are."""
    http = _manager().http
    assert http is not None
    return str(http.address)


def flush(llm: Any) -> bool:
    """Wait until what was stored is in every tier."""
    return _manager().storage.flush(60.0)


def forget(llm: Any) -> None:
    """Empty tier 0, so that what comes next comes from the tier behind it."""
    _manager().storage.local.clear()


def leaks(llm: Any) -> dict[str, Any]:
    """What is left of requests when none is running."""
    scheduler, worker = _sides(llm)
    return {
        "tracked": scheduler._scheduler.requests,
        "loads": len(scheduler._scheduler.take_loads()),
        "promises": _manager().storage.promises,
        "reason": scheduler._reason + worker._reason,
    }


def describe(llm: Any) -> dict[str, Any]:
    """The layout that keys are made of, and why the connector does nothing, if it does nothing."""
    scheduler, worker = _sides(llm)
    card = worker._card
    return {
        "format": card.layout.format if card.layout else "",
        "reason": worker._reason,
        "scheduler_reason": scheduler._reason,
    }


_WHOLE: dict[tuple[int, str], Any] = {}
_PLACES = {
    "match": ("_scheduler", 0),
    "allocated": ("_scheduler", 0),
    "saves": ("_scheduler", 0),
    "finished": ("_scheduler", 0),
    "start_loads": ("_worker", 1),
    "take_ended": ("_worker", 1),
    "save": ("_worker", 1),
}


def break_hook(llm: Any, *, hook: str, chance: float = 1.0, seed: int = 0) -> None:
    """Make a method of one side raise, sometimes or always, until `mend`."""
    attribute, place = _PLACES[hook]
    side = getattr(_sides(llm)[place], attribute)
    whole, source = getattr(side, hook), random.Random(seed)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if source.random() < chance:
            raise RuntimeError(f"{hook} is broken")
        return whole(*args, **kwargs)

    _WHOLE[place, hook] = (side, whole)
    setattr(side, hook, broken)


def mend(llm: Any) -> None:
    """Undo every `break_hook`."""
    for (_, hook), (side, whole) in _WHOLE.items():
        setattr(side, hook, whole)
    _WHOLE.clear()


def health(llm: Any) -> bool:
    """Whether the cache serves from every tier."""
    report = _manager().health.report()
    return report.healthy and not _manager().storage.bypassed()
