"""Whether a declared thing keeps its contract. Each function gives an objection, or None."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection

from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import BOTH_SIDES, HealthCheck
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.settings import PluginSettings

CORE_KEYS = frozenset(name for name, value in vars(HealthOptions).items() if isinstance(value, property))
"""Keys of ``[extra_config]`` that are the core's own, so that no table can have their names."""

_TABLE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")  # no double underscore: it separates levels in LMCACHE_* variables
_POLICY = re.compile(r"[a-z][a-z0-9_]*")


def object_to_table(value: object) -> str | None:
    """Check a settings model."""
    objection = _object_to_class(value, PluginSettings)
    if objection is not None or not (isinstance(value, type) and issubclass(value, PluginSettings)):
        return objection
    table = getattr(value, "table", None)
    if not isinstance(table, str) or _TABLE.fullmatch(table) is None:
        return (
            f"gave {show(value)}, whose table is {table!r}; set it to lower-case letters, digits and single underscores"
        )
    if table in CORE_KEYS:
        return f"gave {show(value)}, whose table {table!r} is a key of the core; choose another name"
    if value.model_config.get("extra") != "forbid":
        return f"gave {show(value)}, which lets unknown keys pass; leave extra='forbid' as PluginSettings has it"
    return None


def object_to_check(value: object) -> str | None:
    """Check a health check class."""
    return (
        _object_to_class(value, HealthCheck)
        or _object_to_methods(
            value,
            [name for name in vars(HealthCheck) if not name.startswith("_")],
        )
        or _object_to_create(value)
    )


def object_to_policy(value: object) -> str | None:
    """Check a fallback policy class."""
    objection = _object_to_class(value, FallbackPolicy)
    if objection is not None:
        return objection
    name = getattr(value, "name", None)
    if not isinstance(name, str) or _POLICY.fullmatch(name) is None:
        return f"gave {show(value)}, whose name is {name!r}; set it to lower-case letters, digits and underscores"
    if not isinstance(getattr(value, "keeps_serving", None), bool):
        return f"gave {show(value)}, which does not say keeps_serving; set it to True or False"
    answers = getattr(value, "answers", None)
    if not (isinstance(answers, frozenset) and answers and answers <= BOTH_SIDES):
        return f"gave {show(value)}, whose answers is {answers!r}; set it to a frozenset of reads, writes or both"
    return _object_to_methods(value, ("engage", "release", "objection"))


def object_to_message(value: object) -> str | None:
    """Check a usage message class."""
    return _object_to_class(value, UsageMessage)


def object_to_instance(value: object, kind: type) -> str | None:
    """Check a record that must be an instance of its contract."""
    if isinstance(value, kind):
        return None
    return f"gave {show(value)}, which is no {kind.__name__}"


def object_to_function(value: object, what: str) -> str | None:
    """Check a function that a record carries."""
    if not callable(value):
        return f"gave {what} that is not callable"
    if inspect.iscoroutinefunction(value):
        return f"gave {what} that is 'async def'; make it a plain function"
    return None


def show(value: object) -> str:
    """Name a class, or the class of anything else; never its content, which may be a secret."""
    return f"class {value.__name__!r}" if isinstance(value, type) else f"an object of type {type(value).__name__!r}"


def _object_to_class(value: object, parent: type) -> str | None:
    if not isinstance(value, type) or not issubclass(value, parent):
        return f"gave {show(value)}, which is no subclass of {parent.__name__}"
    if value is parent:
        return f"gave {parent.__name__} itself; give a subclass"
    absent = sorted(getattr(value, "__abstractmethods__", ()))
    if absent:
        return f"gave {show(value)}, which does not implement {', '.join(absent)}"
    return None


def _object_to_methods(value: object, names: Collection[str]) -> str | None:
    """Refuse what would give a coroutine or a generator: it is true, whatever it would have said."""
    for name in names:
        function = _function_of(value, name)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return f"gave {show(value)}, whose {name} is 'async def'; make it a plain function"
        if inspect.isgeneratorfunction(function):
            return f"gave {show(value)}, whose {name} is a generator; return the value instead of yielding it"
    return None


def _function_of(value: object, name: str) -> object:
    static = inspect.getattr_static(value, name, None)
    if isinstance(static, classmethod | staticmethod):
        return static.__func__
    return static.fget if isinstance(static, property) else static


def _object_to_create(value: object) -> str | None:
    if isinstance(inspect.getattr_static(value, "create", None), classmethod | staticmethod):
        return None
    return f"gave {show(value)}, whose create is no classmethod; write @classmethod above it"
