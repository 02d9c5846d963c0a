"""The checks a monitor runs: each named once, each with terms that can be used, each knowing whom it depends on."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Mapping, Sequence

from lmcache_core.config.checks import CheckTable, fits
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.health.blame import Blame
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.watch import CheckWatch

_LEFT_OUT = "the check does not run"


def enlist(candidates: Sequence[Candidate], now_s: float, blame: Blame | None = None) -> list[CheckWatch]:
    """Make a watch for each candidate, sorted by name.

    A check is left out where it could not say its name or terms, where one before it has its name, and where
    it closes a circle of checks that depend on each other.

    Args:
        candidates: Of two with one name, the first counts.
        now_s: The time.
        blame: Told of those left out; without it, each stops the start.

    Raises:
        PluginError: What `blame` makes of one that is left out.
        ConfigError: The configuration has them depend on each other in a circle.
    """
    blame = blame or Blame()
    watches: dict[str, CheckWatch] = {}
    for one in candidates:
        said = one.said
        if isinstance(said, PluginError):
            blame.put(said, _LEFT_OUT)
        elif said.name in watches:
            taken = f"health check {said.name!r} is already declared by plugin {watches[said.name].plugin!r}"
            error = PluginError(plugin=one.plugin, origin=one.origin, reason=f"{taken}; rename or disable one")
            blame.put(error, _LEFT_OUT, over=[said.name])
        else:
            watches[said.name] = CheckWatch(
                plugin=one.plugin,
                origin=one.origin,
                check=one.check,
                name=said.name,
                reader=said.reader,
                terms=said.terms,
                now_s=now_s,
            )
    return _link(list(watches.values()), blame)


def misses(tables: Sequence[CheckTable], watches: Sequence[CheckWatch]) -> list[str]:
    """Say which patterns of the configuration fit no check, and which name is nearest."""
    names = [watch.name for watch in watches]
    groups = [watch.terms.group for watch in watches if watch.terms.group]
    found = []
    for index, table in enumerate(tables):
        where = f"extra_config.checks[{index}]"
        if not any(fits(table.match, name) for name in names):
            found.append(f"{where}.match: no health check is called {table.match!r}{_nearest(table.match, names)}")
        for pattern in table.depends_on or ():
            if not any(fits(pattern, name) for name in (*names, *groups)):
                hint = _nearest(pattern, [*names, *groups])
                found.append(f"{where}.depends_on: no health check or group is called {pattern!r}{hint}")
    return found


def _link(declared: Sequence[CheckWatch], blame: Blame) -> list[CheckWatch]:
    """Let each watch know all that it depends on, through others as well: a check that is held back is not down."""
    left = sorted(declared, key=lambda watch: watch.name)
    while True:
        direct = {watch.name: [other for other in left if _depends(watch, other)] for watch in left}
        ways = {watch.name: _ways(watch.name, direct) for watch in left}
        circling = {watch.name for watch in left if watch.name in ways[watch.name]}
        if not circling:
            break
        last = next(watch for watch in reversed(declared) if watch.name in circling)
        _break_circle(last, ways[last.name], left, blame)
        left.remove(last)
    by_name = {watch.name: watch for watch in left}
    for watch in left:
        watch.depends_on = tuple(by_name[name] for name in ways[watch.name])
    return left


def _ways(name: str, direct: Mapping[str, Sequence[CheckWatch]]) -> dict[str, str]:
    """Name all that a check depends on, the nearest first, each with the one before it on the way there."""
    before: dict[str, str] = {}
    waiting = deque([name])
    while waiting:
        here = waiting.popleft()
        for other in direct[here]:
            if other.name not in before:
                before[other.name] = here
                waiting.append(other.name)
    return before


def _break_circle(last: CheckWatch, ways: Mapping[str, str], watches: Sequence[CheckWatch], blame: Blame) -> None:
    way = [last.name]
    while len(way) == 1 or way[-1] != last.name:
        way.append(ways[way[-1]])
    circle = " -> ".join(map(repr, reversed(way)))
    if any(watch.name in way and {"depends_on", "group"} & watch.reader.configured.keys() for watch in watches):
        raise ConfigError(f"health checks depend on each other in a circle: {circle}; break it in depends_on")
    blame.put(last.error(f"health check {last.name!r} depends on itself: {circle}; break it in depends_on"), _LEFT_OUT)


def _depends(watch: CheckWatch, other: CheckWatch) -> bool:
    group = other.terms.group
    if other is watch or (group and group == watch.terms.group):
        return False
    return any(fits(pattern, other.name) or (group and fits(pattern, group)) for pattern in watch.terms.depends_on)


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.replace("*", ""), sorted(names), n=1, cutoff=0.3)
    if near:
        return f"; the nearest name is {near[0]!r}"
    return f"; known: {', '.join(map(repr, sorted(names)))}" if names else "; there is none"
