"""The checks a monitor runs: each named once, each with terms that can be used."""

from __future__ import annotations

from collections.abc import Sequence

from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.errors import PluginError
from lmcache_core.health.run import read_terms
from lmcache_core.health.watch import CheckWatch
from lmcache_core.threads import describe_error


def enlist(checks: Sequence[tuple[str, str, HealthCheck]], options: HealthOptions, now_s: float) -> list[CheckWatch]:
    """Make a watch for each ``(plugin, origin, check)``, sorted by name.

    Raises:
        PluginError: Two checks with one name, or a check that cannot be asked for its name or terms.
    """
    watches: dict[str, CheckWatch] = {}
    for plugin, origin, check in checks:
        kind = type(check).__name__
        try:
            terms = read_terms(check, options)
            name = _name_of(check)
        except Exception as error:
            reason = f"health check {kind} cannot be used: {describe_error(error)}"
            raise PluginError(plugin=plugin, origin=origin, reason=reason) from error
        if name in watches:
            taken = f"health check {name!r} is already declared by plugin {watches[name].plugin!r}"
            raise PluginError(plugin=plugin, origin=origin, reason=f"{taken}; rename or disable one")
        watches[name] = CheckWatch(plugin=plugin, check=check, name=name, terms=terms, now_s=now_s)
    return [watches[name] for name in sorted(watches)]


def _name_of(check: HealthCheck) -> str:
    name: object = check.name()
    if not isinstance(name, str) or not name:
        raise ValueError(f"name() must give a name, got {name!r}")
    return name
