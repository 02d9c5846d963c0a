"""Loading all plugins: one scan, each plugin alone, then the names that two of them claim."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint

from lmcache_core.errors import ConfigError, LMCacheError, PluginError
from lmcache_core.registry.attempt import Attempt, block, load_one, refuse
from lmcache_core.registry.claims import Claims
from lmcache_core.registry.collect import PluginRegistry
from lmcache_core.registry.discover import Found, find_plugins, scan_entry_points

log = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 10.0
"""Default of ``plugins.load_timeout_secs``."""


def load_plugins(
    *,
    disabled: Collection[str] = (),
    required: Collection[str] = (),
    third_party: bool = True,
    entry_points: Sequence[EntryPoint] | None = None,
    strict: bool = True,
    load_timeout_s: float = LOAD_TIMEOUT_S,
) -> PluginRegistry:
    """Find, import and ask all plugins. Call once, at start-up, on the main thread.

    Args:
        disabled: Names that are not imported.
        required: Names without which there is no start-up.
        third_party: False blocks every plugin but the built-in ones.
        entry_points: Instead of a scan of what is installed.
        strict: False never raises: what would have stopped start-up is in `PluginRegistry.problems`,
            so that a command can show even a broken installation.
        load_timeout_s: Seconds that one third party's plugin may take; the built-in ones are not timed.

    Raises:
        ConfigError: A disabled or required name was not found, or the two contradict each other.
        PluginError: Two plugins claim one name, or a required one did not load.
    """
    found = find_plugins(scan_entry_points() if entry_points is None else entry_points)
    blocked, wanted = _sort_out(found, disabled, third_party=third_party)
    attempts = _load_all(wanted, load_timeout_s)
    problems: list[LMCacheError] = [
        *_object_to_names(found, disabled, required, third_party=third_party),
        *_settle(attempts, required),
    ]
    if problems and strict:
        raise problems[0]
    attempts = sorted([*blocked, *attempts], key=lambda attempt: found.index(attempt.found))
    loaded = [attempt.loaded for attempt in attempts if attempt.loaded is not None]
    return PluginRegistry([attempt.record for attempt in attempts], loaded, problems, load_timeout_s)


def _sort_out(
    found: Sequence[Found], disabled: Collection[str], *, third_party: bool
) -> tuple[list[Attempt], list[Found]]:
    blocked: list[Attempt] = []
    wanted: list[Found] = []
    for one in found:
        if one.name in disabled:
            blocked.append(block(one, "disabled by name"))
        elif not (third_party or one.builtin):
            blocked.append(block(one, "third-party plugins are switched off"))
        else:
            wanted.append(one)
    return blocked, wanted


def _load_all(wanted: Sequence[Found], limit_s: float) -> list[Attempt]:
    """Load in an order in which a built-in's claim comes before a third party's."""
    claims = Claims()
    return [_load_claiming(found, claims, limit_s) for found in sorted(wanted, key=lambda one: not one.builtin)]


def _load_claiming(found: Found, claims: Claims, limit_s: float) -> Attempt:
    taken = claims.take_plugin(found)
    if taken is None:
        attempt = load_one(found, limit_s=limit_s)
        if attempt.loaded is None:
            return attempt
        taken = claims.take_names(found, attempt.loaded.declared)
        if taken is None:
            return attempt
    return replace(refuse(found, taken), fatal=True)


def _settle(attempts: Sequence[Attempt], required: Collection[str]) -> list[PluginError]:
    """Warn of each optional plugin that is lost, once; give the errors that stop start-up, clashes first."""
    fatal: list[PluginError] = []
    for attempt in sorted(attempts, key=lambda one: not one.fatal):
        if attempt.error is None:
            continue
        if attempt.fatal or attempt.found.name in required:
            fatal.append(attempt.error)
        elif attempt.loaded is None:
            log.warning("%s", attempt.error, exc_info=attempt.error.__cause__)
    return fatal


def _object_to_names(
    found: Sequence[Found], disabled: Collection[str], required: Collection[str], *, third_party: bool
) -> list[ConfigError]:
    names = {one.name for one in found}
    builtin = {one.name for one in found if one.builtin}
    sentences = [
        f"plugins.{key}: no plugin named {name!r} is installed; {_nearest(name, names)}"
        for key, given in (("disabled", disabled), ("required", required))
        for name in given
        if name not in names
    ]
    for name in required:
        if name in disabled:
            sentences.append(f"plugins.required: {name!r} is in plugins.disabled too; take it out of one")
        elif not third_party and name in names - builtin:
            sentences.append(f"plugins.required: {name!r} is a third party's, and those are switched off; allow them")
    return [ConfigError(*sentences)] if sentences else []


def _nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f"did you mean {near[0]!r}?" if near else "install it, or take the name out"
