"""One attempt to load one plugin; whatever it raises ends here."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from lmcache_core.errors import PluginError, PluginUnavailableError
from lmcache_core.hookspecs import API_VERSION
from lmcache_core.registry.declare import declare
from lmcache_core.registry.discover import Found
from lmcache_core.registry.hooks import PluginHooks, describe
from lmcache_core.registry.loaded import LoadedPlugin
from lmcache_core.registry.missing import find_missing_module, install_line
from lmcache_core.registry.record import PluginRecord, PluginState
from lmcache_core.registry.watched import OverdueError, WatchedCall

log = logging.getLogger(__name__)

_WAY_OUT = "mend what it waits for, put it into plugins.disabled, or raise plugins.load_timeout_secs"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one discovered plugin.

    Attributes:
        found: The plugin.
        record: What is known of it.
        loaded: None where nothing of it is registered.
        error: Why it cannot be used; None where it can, or was not to be loaded.
        fatal: Whether that stops start-up even where the plugin is optional.
    """

    found: Found
    record: PluginRecord
    loaded: LoadedPlugin | None = None
    error: PluginError | None = None
    fatal: bool = False


def load_one(found: Found, *, limit_s: float) -> Attempt:
    """Import one plugin and ask what it declares.

    A third party's is loaded on a thread of its own, and left out when that takes longer than so many seconds.
    """
    if found.builtin:
        return _load_here(found)
    held_up = _object_to_waiting(found)
    if held_up is not None:
        return refuse(found, held_up)
    call: WatchedCall[Attempt] = WatchedCall(
        partial(_load_here, found), target=found.entry_point.value, on_late=partial(_tell_late, found)
    )
    try:
        return call.wait(limit_s)
    except OverdueError as error:
        left_out = refuse(found, f"still loading {error.since}; {_WAY_OUT}")
        record = replace(left_out.record, traceback=error.stack, load_ms=limit_s * 1000)
        return replace(left_out, record=record)


def _load_here(found: Found) -> Attempt:
    started = time.perf_counter()
    try:
        plugin = found.entry_point.load()
        misfit = _object_to_api(plugin, found)
        if misfit is not None:
            return refuse(found, misfit, PluginState.INCOMPATIBLE)
        hooks = PluginHooks(plugin, found)
        loaded = LoadedPlugin(found=found, hooks=hooks, declared=declare(found, hooks))
    except KeyboardInterrupt:
        raise  # the user's, not the plugin's
    except BaseException as error:  # noqa: BLE001 - one plugin's load is a border: SystemExit and all end here
        failed = _explain(found, error)
        return replace(failed, record=replace(failed.record, load_ms=_since_ms(started)))
    return Attempt(found, loaded.record(_since_ms(started)), loaded, loaded.useless())


def refuse(found: Found, reason: str, state: PluginState = PluginState.FAILED) -> Attempt:
    """Leave a plugin out for a reason that is no exception of its own."""
    return Attempt(found, _record(found, state, reason), error=found.error(reason))


def block(found: Found, reason: str) -> Attempt:
    """Leave a plugin out because the user said so."""
    return Attempt(found, _record(found, PluginState.DISABLED, reason))


def _object_to_waiting(found: Found) -> str | None:
    """Say why there is no use in waiting again: an attempt of this process hangs in what would be loaded."""
    if WatchedCall.find_given_up(found.entry_point.value) is not None:
        return f"still loading since an earlier start in this process; {_WAY_OUT}"
    if not WatchedCall.any_given_up():
        return None
    parts = _module_name(found).split(".")
    for module in (".".join(parts[: length + 1]) for length in range(len(parts))):
        spec = getattr(sys.modules.get(module), "__spec__", None)
        if getattr(spec, "_initializing", False):  # what importlib itself asks before it waits for a module
            return f"module {module!r} is still being imported for another plugin, which was given up"
    return None


def _tell_late(found: Found, _outcome: Callable[[], Attempt]) -> None:
    log.warning("%s", found.error(f"it has loaded after all, too late, and stays left out; {_WAY_OUT}"))


def _object_to_api(plugin: object, found: Found) -> str | None:
    """Compare ``lmcache_api`` with the hook API here; None where it fits.

    Raises:
        PluginError: It is no version range.
    """
    module = sys.modules.get(_module_name(found))
    wanted = getattr(plugin, "lmcache_api", None) or getattr(module, "lmcache_api", None)
    if wanted is None:
        return None
    try:
        fits = SpecifierSet(wanted).contains(API_VERSION)
    except (InvalidSpecifier, TypeError, AttributeError) as error:
        raise found.error(f"lmcache_api is {wanted!r}, which is no version range such as '>=1,<2'") from error
    if fits:
        return None
    return f"needs hook API {wanted}, and this is {API_VERSION}; install a release of {found.distribution} that fits"


def _explain(found: Found, error: BaseException) -> Attempt:
    missing = find_missing_module(error, own_package=_module_name(found).partition(".")[0])
    state, refusal = PluginState.FAILED, found.error(f"loading raised {describe(error)}")
    if isinstance(error, PluginError):
        refusal = error
    elif missing is not None:
        line = install_line(found.entry_point.dist, name=found.distribution, module=missing)
        state = PluginState.UNAVAILABLE
        refusal = PluginUnavailableError(plugin=found.name, origin=found.origin, missing=missing, install=line)
    if refusal is not error:
        refusal.__cause__ = error
    text = "".join(traceback.format_exception(error))
    return Attempt(found, replace(_record(found, state, refusal.reason), traceback=text), error=refusal)


def _record(found: Found, state: PluginState, reason: str) -> PluginRecord:
    return PluginRecord(
        name=found.name,
        distribution=found.distribution,
        version=found.version,
        builtin=found.builtin,
        target=found.entry_point.value,
        state=state,
        reason=reason,
    )


def _module_name(found: Found) -> str:
    return found.entry_point.value.partition(":")[0].strip()


def _since_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
