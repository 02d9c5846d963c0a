"""One plugin's hook functions: checked, then called."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping

import pluggy

from lmcache_core import hookspecs
from lmcache_core.errors import PluginError
from lmcache_core.hookspecs import PROJECT_NAME
from lmcache_core.registry.discover import Found

MOST_ITEMS = 10_000
"""Of what a plugin gives at once; a generator that never ends must not take the host's memory with it."""


class PluginHooks:
    """The hooks of one plugin, in a pluggy manager of its own: one that fails leaves no trace.

    Args:
        plugin: The imported module or object.
        found: Who it is, for error texts.

    Raises:
        PluginError: A hook is misspelt, unmarked, ``async def``, a wrapper, or has unknown arguments.
    """

    def __init__(self, plugin: object, found: Found) -> None:
        self._found = found
        manager = pluggy.PluginManager(PROJECT_NAME)
        manager.add_hookspecs(hookspecs)
        specs = _spec_arguments(manager)
        marked = _marked_functions(manager, plugin)
        for attribute, (function, options) in marked.items():
            objection = _object_to(attribute, function, options, specs)
            if objection is not None:
                raise found.error(objection)
        self._refuse_unmarked(plugin, marked, specs)
        self._impls = self._register(manager, plugin)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the implemented hooks, sorted."""
        return tuple(sorted(self._impls))

    def call(self, hook: str, arguments: Mapping[str, object]) -> object:
        """Call one implemented hook and give what it returns, None included."""
        impl = self._impls[hook]
        return impl.function(*(arguments[name] for name in impl.argnames))

    def collect(self, hook: str, arguments: Mapping[str, object] | None = None) -> list[object]:
        """Call one declaring hook; give all that it declares, ``[]`` where it is not implemented.

        Raises:
            PluginError: It raised, half-way through or at once, or returned no iterable.
            ModuleNotFoundError: As raised by the hook, for the caller to tell a missing extra by.
        """
        if hook not in self._impls:
            return []
        try:
            result = self.call(hook, arguments or {})
            objection = _object_to_result(result)
            items = [] if objection else list(itertools.islice(_iterable(result), MOST_ITEMS + 1))
        except (ModuleNotFoundError, KeyboardInterrupt):
            raise
        except BaseException as error:  # SystemExit included: a plugin must not end its host
            raise self._found.error(f"hook {hook} raised {describe(error)}") from error
        if len(items) > MOST_ITEMS:
            objection = f"gave more than {MOST_ITEMS} items; it seems never to end"
        if objection is not None:
            raise self._found.error(f"hook {hook} {objection}")
        return items

    def _refuse_unmarked(self, plugin: object, marked: Iterable[str], specs: Iterable[str]) -> None:
        for name in sorted(set(specs) - set(marked)):
            if inspect.isroutine(getattr(plugin, name, None)):
                raise self._found.error(f"function {name} is not marked; write @hookimpl above it")

    def _register(self, manager: pluggy.PluginManager, plugin: object) -> dict[str, pluggy.HookImpl]:
        try:
            manager.register(plugin, self._found.name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise self._found.error(f"pluggy refused it: {describe(error)}") from error
        impls: dict[str, pluggy.HookImpl] = {}
        for caller in manager.get_hookcallers(plugin) or ():
            if len(caller.get_hookimpls()) > 1:
                raise self._found.error(f"hook {caller.name} is implemented twice; keep one function")
            if caller.spec is not None:  # an optional hook of a later API has none
                impls[caller.name] = caller.get_hookimpls()[0]
        if not impls:
            raise self._found.error("it implements no hook; mark its functions with lmcache_core.hookimpl")
        return impls


def describe(error: BaseException) -> str:
    """Say in one line what was raised."""
    if isinstance(error, SystemExit):
        return f"SystemExit({error.code!r}); a plugin must not end its host"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def blame(hook: str, error: BaseException) -> str:
    """Say in one line what came of calling a hook."""
    return error.reason if isinstance(error, PluginError) else f"hook {hook} raised {describe(error)}"


def discard(result: object) -> bool:
    """Tell whether a value is awaitable; if so, close it, so that Python does not warn of it later."""
    if not inspect.isawaitable(result):
        return False
    if inspect.iscoroutine(result):
        result.close()
    return True


def _spec_arguments(manager: pluggy.PluginManager) -> dict[str, tuple[str, ...]]:
    callers = (getattr(manager.hook, name) for name in vars(hookspecs) if name.startswith(f"{PROJECT_NAME}_"))
    return {caller.name: tuple(caller.spec.argnames) for caller in callers}


def _marked_functions(
    manager: pluggy.PluginManager, plugin: object
) -> dict[str, tuple[Callable[..., object], Mapping[str, object]]]:
    marked: dict[str, tuple[Callable[..., object], Mapping[str, object]]] = {}
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is not None:
            marked[name] = (getattr(plugin, name), dict(options))
    return marked


def _object_to(
    attribute: str,
    function: Callable[..., object],
    options: Mapping[str, object],
    specs: Mapping[str, tuple[str, ...]],
) -> str | None:
    hook = str(options.get("specname") or attribute)
    if hook not in specs:
        if options.get("optionalhook"):
            return None
        near = difflib.get_close_matches(hook, specs, n=1)
        return f"{hook} is no hook; " + (f"did you mean {near[0]}" if near else "see the list of hooks")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"hook {hook} is 'async def'; hooks are plain functions"
    if options.get("wrapper") or options.get("hookwrapper"):
        return f"hook {hook} is a wrapper; each plugin's hooks are called alone"
    unknown = [name for name in _required_arguments(function) if name not in specs[hook]]
    if unknown:
        known = ", ".join(specs[hook]) or "none"
        return f"hook {hook} has the unknown argument {unknown[0]!r}; it may take: {known}"
    return None


def _required_arguments(function: Callable[..., object]) -> list[str]:
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]


def _object_to_result(result: object) -> str | None:
    if discard(result):
        return "returned a coroutine; return a list, or make it a generator"
    if result is None:
        return "returned None; return a list, or make it a generator"
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        return f"returned an object of type {type(result).__name__!r}; return a list, or make it a generator"
    return None


def _iterable(result: object) -> Iterable[object]:
    return result if isinstance(result, Iterable) else ()
