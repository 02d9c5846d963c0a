"""Has a class of health checks make its instances."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lmcache_core.config.checks import CheckTable
from lmcache_core.contracts.control import CacheView, HealthOptions
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.errors import PluginError
from lmcache_core.health.candidate import Candidate
from lmcache_core.registry.hooks import MOST_ITEMS
from lmcache_core.registry.make import make
from lmcache_core.registry.record import Declared


def create_checks(
    declared: Declared[type[HealthCheck]],
    view: CacheView,
    *,
    options: HealthOptions,
    tables: Sequence[CheckTable],
    limit_s: float,
) -> list[Candidate]:
    """Call a class's `create`, and ask each check what has to be known of it at start-up.

    Args:
        declared: The class, and who declared it.
        view: What `create` gets.
        options: Defaults of their terms.
        tables: ``[[extra_config.checks]]``.
        limit_s: Longest that a third party's may take.

    Raises:
        PluginError: `create` raised, or gave too many; or it, or one of the checks, did not answer in time.
    """
    what = f"{declared.value.__name__}.create"

    def call() -> list[Candidate]:
        made = list(itertools.islice(declared.value.create(view), MOST_ITEMS + 1))
        if len(made) > MOST_ITEMS:
            reason = f"{what} gave more than {MOST_ITEMS} checks; it seems never to end"
            raise PluginError(plugin=declared.plugin, origin=declared.origin, reason=reason)
        return [Candidate.ask(declared.plugin, declared.origin, check, options, tables) for check in made]

    return make(declared, what, call, limit_s=limit_s)
