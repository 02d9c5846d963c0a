"""What tests do inside an engine's process: look at the connector's two sides, and break them."""

from __future__ import annotations

import itertools
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


def workers(llm: Any) -> list[dict[str, Any]]:
    """What each worker says of itself, of the first rank first."""
    return list(llm.collective_rpc(_card))


def flush_workers(llm: Any) -> bool:
    """Wait until what each worker stored is in every tier of its."""
    return all(llm.collective_rpc(_flush))


def forget_workers(llm: Any) -> None:
    """Empty tier 0 of each worker."""
    llm.collective_rpc(_forget)


def break_loads(llm: Any, *, rank: int) -> None:
    """Make every load of one worker raise, until `mend_workers`."""
    llm.collective_rpc(_break_loads, args=(rank,))


def mend_workers(llm: Any) -> None:
    """Undo every `break_loads`."""
    llm.collective_rpc(_mend)


def _break_loads(worker: Any, rank: int) -> None:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("retrieve is broken")

    connector = get_kv_transfer_group()
    if connector._card.rank == rank:
        chunks = connector._cache.chunks
        _WHOLE[1, "retrieve"] = (chunks, chunks.retrieve)
        chunks.retrieve = broken


def _mend(worker: Any) -> None:
    mend(None)


def _card(worker: Any) -> dict[str, Any]:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    connector = get_kv_transfer_group()
    cache = connector._cache
    return {
        "rank": (connector._card.rank, connector._card.world_size),
        "reason": connector._reason,
        "promises": cache.manager.storage.promises if cache.manager else 0,
    }


def _flush(worker: Any) -> bool:
    return _manager().storage.flush(60.0)


def _forget(worker: Any) -> None:
    _manager().storage.local.clear()


def drop_loads(llm: Any) -> None:
    """Have loads leave their blocks as they are, and say that they filled them, until `mend`."""
    from lmcache_plugins.vllm.paged import PagedAdapter

    def scatter(self: PagedAdapter, payload: memoryview, kv: Any, start: int) -> None:
        pass

    _WHOLE[1, "scatter"] = (PagedAdapter, PagedAdapter.scatter)
    PagedAdapter.scatter = scatter  # type: ignore[method-assign]


def shorten_loads(llm: Any) -> None:
    """Have every other load end half-way, until `mend`."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    chunks = get_kv_transfer_group()._cache.chunks
    whole, loads = chunks.retrieve, itertools.count()

    def short(tokens: Any, out: Any, **how: Any) -> Any:
        mask = whole(tokens, out, **how)
        if next(loads) % 2:
            mask[max(how["skip_tokens"], len(mask) // 2) :] = False
        return mask

    _WHOLE[1, "retrieve"] = (chunks, whole)
    chunks.retrieve = short


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
