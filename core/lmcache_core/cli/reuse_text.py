"""The reuse report as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from lmcache_core.cli.plot import bar, plot_lines
from lmcache_core.telemetry.histogram import OVERFLOW
from lmcache_core.telemetry.miss_ratio import Estimate, MissRatioCurve
from lmcache_core.telemetry.reuse_snapshot import ReuseSnapshot
from lmcache_core.telemetry.reuse_totals import reuse_classes

_GIB = 1 << 30
_COLUMNS = 60
_COARSE = 0.02
_MOST_ROWS = 7
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_CLASSES = {
    "once": "asked for once",
    "burst": "reused within an hour only",
    "daily": "reused for longer, up to 32 times",
    "shared_prefix": "reused for longer and more often",
}


def report_lines(snapshot: ReuseSnapshot, *, capacity_bytes: int, added_bytes: Sequence[int]) -> Iterator[str]:
    """Write the whole report.

    Args:
        snapshot: From a running cache.
        capacity_bytes: Of the cache as it is; 0 when not known.
        added_bytes: Sizes to answer "what would that give" for; empty to choose them.
    """
    yield from _summary(snapshot)
    if not snapshot.totals.accesses:
        return
    yield from _classes(snapshot)
    yield from _lifespans(snapshot)
    yield from _curve(snapshot, capacity_bytes)
    yield from _sizes(snapshot, capacity_bytes, added_bytes)


def span(seconds: float) -> str:
    """Write a time in its largest whole unit: ``2 h``."""
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {name}"
    return f"{seconds:.2g} s"


def _summary(snapshot: ReuseSnapshot) -> Iterator[str]:
    totals, curve = snapshot.totals, snapshot.curve
    rate = curve.sample_rate
    sample = "every chunk" if rate == 1 else f"one chunk of {rate}"
    yield f"observed for {span(snapshot.observed_s)} since the start; {sample} is tracked, {snapshot.tracked} now"
    if not totals.accesses:
        yield "no lookup yet"
        return
    best = curve.best_miss_ratio()
    yield f"chunks asked for   {totals.accesses}"
    yield f"served             {_percent(totals.served / totals.accesses)}"
    yield f"ideal hit rate     {_estimate(Estimate(1 - best.share, best.error))}, by a cache without limits"
    missed = totals.seen_before - totals.found
    if missed:
        yield (
            f"reuses missed      {_percent(totals.lost / missed)} were held once and gone, "
            f"{_percent(1 - totals.lost / missed)} were not seen held"
        )
    if len(snapshot.tenants) > 1:
        most = max(sampled for sampled, _ in snapshot.tenants)
        yield f"tenants            {len(snapshot.tenants)}; the largest makes {_percent(most / totals.sampled)}"
    if totals.retired_by_cap:
        yield (
            f"note: {totals.retired_by_cap} chunks were retired because the table was full; "
            "raise table_cap or sample_rate"
        )


def _classes(snapshot: ReuseSnapshot) -> Iterator[str]:
    counts = {
        "once": snapshot.totals.never_reused + snapshot.living_once,
        **reuse_classes(_joined(snapshot.totals.reuse_lifespan, snapshot.living)),
    }
    whole = sum(counts.values()) or 1
    yield ""
    yield "class           share  sampled chunks"
    for name, text in _CLASSES.items():
        yield f"{name:<13} {_percent(counts[name] / whole):>7}  {counts[name]:<9} {text}"


def _lifespans(snapshot: ReuseSnapshot) -> Iterator[str]:
    counts: dict[str, int] = dict.fromkeys(snapshot.totals.lifespan, 0)
    for cell, count in _joined(snapshot.totals.reuse_lifespan, snapshot.living).items():
        bound = cell.partition("|")[2]
        counts[bound] = counts.get(bound, 0) + count
    whole = sum(counts.values())
    if not whole:
        return
    yield ""
    yield "lifespan of reused chunks, first reuse to last access; those still tracked as they are now"
    used = [number for number, count in enumerate(counts.values()) if count]
    for number, (bound, count) in enumerate(counts.items()):
        if used[0] <= number <= used[-1]:
            name = "longer" if bound == OVERFLOW else f"to {span(float(bound))}"
            yield f"{name:>9}  {_percent(count / whole):>7}  {bar(count / whole)}".rstrip()


def _curve(snapshot: ReuseSnapshot, capacity_bytes: int) -> Iterator[str]:
    curve = snapshot.curve
    least = float(max(1, curve.sample_rate))
    most = min(max(curve.footprint_chunks(), 2 * least), curve.horizon_chunks)
    if most <= least:
        return
    step = math.log(most / least) / (_COLUMNS - 1)
    sizes = [least * math.exp(step * column) for column in range(_COLUMNS)]
    now_chunks = _chunks(capacity_bytes, snapshot)
    here = round(math.log(now_chunks / least) / step) if now_chunks > 0 else -1
    marks = [here] if 0 <= here < _COLUMNS else []
    yield ""
    yield f"miss ratio over the size of the cache{'; ^ is its size now' if marks else ''}"
    labels = [(column, _size(sizes[column], snapshot)) for column in (0, _COLUMNS // 3, 2 * _COLUMNS // 3)]
    labels.append((_COLUMNS - 4, _size(most, snapshot)))
    yield from plot_lines([curve.miss_ratio(size).share for size in sizes], labels=labels, marks=marks)


def _sizes(snapshot: ReuseSnapshot, capacity_bytes: int, added_bytes: Sequence[int]) -> Iterator[str]:
    curve = snapshot.curve
    if not snapshot.chunk_bytes or not capacity_bytes:
        yield ""
        yield "what more memory would give is not known: " + (
            "nothing was stored yet" if not snapshot.chunk_bytes else "name the cache's size with --capacity"
        )
        return
    now = curve.miss_ratio(_chunks(capacity_bytes, snapshot))
    yield ""
    yield "memory                 chunks  miss ratio         gain"
    coarse = False
    for added in (0, *(added_bytes or _doublings(capacity_bytes, snapshot))):
        chunks = _chunks(capacity_bytes + added, snapshot)
        name = f"now {_gib(capacity_bytes)}" if not added else f"+{_gib(added)}"
        if chunks > curve.horizon_chunks:
            yield f"{name:<16} {int(chunks):>12}  beyond what the table remembers"
            continue
        there = curve.miss_ratio(chunks)
        coarse |= there.error > _COARSE
        gain = "" if not added else f"{100 * (now.share - there.share):+.1f} points"
        yield f"{name:<16} {int(chunks):>12}  {_estimate(there):<17}  {gain}".rstrip()
    if coarse:
        yield f"note: the sample is coarse at these sizes; lower sample_rate, {curve.sample_rate} now, to tell more"


def _doublings(capacity_bytes: int, snapshot: ReuseSnapshot) -> list[int]:
    """Double the cache until more gives nothing."""
    rows: list[int] = []
    size = capacity_bytes
    while len(rows) < _MOST_ROWS:
        size *= 2
        rows.append(size - capacity_bytes)
        if _chunks(size, snapshot) >= snapshot.curve.footprint_chunks():
            break
    return rows


def _chunks(size_bytes: int, snapshot: ReuseSnapshot) -> float:
    return size_bytes // snapshot.chunk_bytes if snapshot.chunk_bytes else 0


def _size(chunks: float, snapshot: ReuseSnapshot) -> str:
    return _gib(chunks * snapshot.chunk_bytes) if snapshot.chunk_bytes else f"{chunks:.0f}"


def _gib(size_bytes: float) -> str:
    if size_bytes < _GIB:
        return f"{size_bytes / (1 << 20):.3g} MiB"
    return f"{size_bytes / _GIB:.3g} GiB" if size_bytes < 1024 * _GIB else f"{size_bytes / (1024 * _GIB):.3g} TiB"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _estimate(estimate: Estimate) -> str:
    return _percent(estimate.share) + (f" +- {100 * estimate.error:.1f}" if estimate.error else "")


def _joined(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def curve_points(curve: MissRatioCurve) -> list[dict[str, float]]:
    """Give the curve at every power of two, for programs."""
    points: list[dict[str, float]] = []
    chunks = 1.0
    most = min(curve.footprint_chunks(), curve.horizon_chunks)
    while curve.accesses:
        there = curve.miss_ratio(min(chunks, max(1.0, most)))
        points.append({"chunks": min(chunks, max(1.0, most)), "miss_ratio": there.share, "error": there.error})
        if chunks >= most:
            break
        chunks *= 2
    return points
