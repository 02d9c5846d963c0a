"""The checks a monitor runs: each named once, each with terms that can be used, each knowing whom it depends on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from lmcache_core.config.checks import CheckTable, fits
from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.health.terms import TermReader
from lmcache_core.health.watch import CheckWatch
from lmcache_core.threads import describe_error


def enlist(
    checks: Sequence[tuple[str, str, HealthCheck]],
    options: HealthOptions,
    tables: Sequence[CheckTable],
    now_s: float,
) -> list[CheckWatch]:
    """Make a watch for each ``(plugin, origin, check)``, sorted by name.

    Raises:
        PluginError: Two checks with one name, or a check that cannot be asked for its name or terms.
        ConfigError: Checks that depend on each other in a circle.
    """
    watches: dict[str, CheckWatch] = {}
    for plugin, origin, check in checks:
        kind = type(check).__name__
        try:
            name = _name_of(check)
            reader = TermReader(options, _configured(name, tables))
            terms = reader.read(check)
        except Exception as error:  # the border of one plugin's check
            reason = f"health check {kind} cannot be used: {describe_error(error)}"
            raise PluginError(plugin=plugin, origin=origin, reason=reason) from error
        if name in watches:
            taken = f"health check {name!r} is already declared by plugin {watches[name].plugin!r}"
            raise PluginError(plugin=plugin, origin=origin, reason=f"{taken}; rename or disable one")
        watches[name] = CheckWatch(plugin=plugin, check=check, name=name, reader=reader, terms=terms, now_s=now_s)
    made = [watches[name] for name in sorted(watches)]
    _link(made)
    return made


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


def _configured(name: str, tables: Sequence[CheckTable]) -> Mapping[str, object]:
    """What the configuration says of a check; later entries win."""
    said: dict[str, object] = {}
    for table in tables:
        if fits(table.match, name):
            said.update(table.terms())
    return said


def _link(watches: Sequence[CheckWatch]) -> None:
    """Let each watch know all that it depends on, through others as well: a check that is held back is not down."""
    direct = {watch.name: [other for other in watches if _depends(watch, other)] for watch in watches}
    for watch in watches:
        watch.depends_on = tuple(_closure(watch, direct, [watch.name]))


def _closure(watch: CheckWatch, direct: Mapping[str, list[CheckWatch]], way: list[str]) -> Iterator[CheckWatch]:
    for other in direct[watch.name]:
        if other.name in way:
            circle = " -> ".join(map(repr, [*way[way.index(other.name) :], other.name]))
            raise ConfigError(f"health checks depend on each other in a circle: {circle}; break it in depends_on")
        yield other
        yield from _closure(other, direct, [*way, other.name])


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


def _name_of(check: HealthCheck) -> str:
    name: object = check.name()
    if not isinstance(name, str) or not name:
        raise ValueError(f"name() must give a name, got {name!r}")
    return name
