"""Has a class of health checks make its instances."""

from __future__ import annotations

import contextlib
import itertools

from lmcache_core.contracts.control import CacheView
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.errors import PluginError
from lmcache_core.health.terms import TermReader
from lmcache_core.registry.hooks import MOST_ITEMS
from lmcache_core.registry.make import make
from lmcache_core.registry.record import Declared


def create_checks(declared: Declared[type[HealthCheck]], view: CacheView, *, limit_s: float) -> list[HealthCheck]:
    """Call a class's `create`, and ask each check once what will be asked of it at start-up.

    Args:
        declared: The class, and who declared it.
        view: What `create` gets.
        limit_s: Longest that a third party's may take.

    Raises:
        PluginError: `create` raised, or gave too many; or it, or one of the checks, did not answer in time.
    """
    what = f"{declared.value.__name__}.create"

    def call() -> list[HealthCheck]:
        made = list(itertools.islice(declared.value.create(view), MOST_ITEMS + 1))
        if len(made) > MOST_ITEMS:
            reason = f"{what} gave more than {MOST_ITEMS} checks; it seems never to end"
            raise PluginError(plugin=declared.plugin, origin=declared.origin, reason=reason)
        for check in made:
            with contextlib.suppress(Exception):  # it is here for its time; what it raises, `enlist` says
                check.name()
                TermReader(view.health_options).read(check)
        return made

    return make(declared, what, call, limit_s=limit_s)
