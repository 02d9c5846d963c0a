"""Modules that are not installed, and the line that installs them."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import Distribution

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_CORE_PACKAGE = "lmcache_core"


def find_missing_module(error: BaseException, *, own_package: str) -> str | None:
    """Name the third-party module whose absence made an import fail; None for any other failure.

    Args:
        error: What importing or calling the plugin raised.
        own_package: Top-level package of the plugin: a module of its own that is absent is a fault
            of the plugin, and no package mends it.
    """
    cause: BaseException | None = error
    while isinstance(cause, ImportError):
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            top = cause.name.partition(".")[0]
            mine = top in {own_package, _CORE_PACKAGE} or top in sys.stdlib_module_names
            return None if mine or is_installed(top) else top
        cause = cause.__cause__
    return None


def is_installed(module: str) -> bool:
    """Tell whether a module's top-level package can be imported, without importing it."""
    top = module.partition(".")[0]
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # ValueError: in sys.modules without a spec, so it is there
        return top in sys.modules


def install_line(distribution: Distribution | None, *, name: str, module: str) -> str:
    """Give the pip line that mends a missing module.

    Args:
        distribution: Whose requirements say how the module is installed; None where unknown.
        name: The distribution's name.
        module: The module, taken as the name of its package too.
    """
    if distribution is None:
        return f"pip install {module}"
    extras = distribution.metadata.get_all("Provides-Extra") or []
    requirements = [one for text in distribution.requires or () for one in _parse(text)]
    wanted = [one for one in requirements if canonicalize_name(one.name) == canonicalize_name(module)]
    if any(one.marker is None or one.marker.evaluate({"extra": ""}) for one in wanted):
        return f"pip install {name}"  # a plain requirement of it: pip adds what is absent
    offers = [extra for extra in extras if any(_asks(one, extra) for one in wanted)]
    if not offers:
        return f"pip install {name} {module}"
    smallest = min(offers, key=lambda extra: (sum(_asks(one, extra) for one in requirements), extra))
    return f"pip install '{name}[{smallest}]'"


def _parse(text: str) -> list[Requirement]:
    try:
        return [Requirement(text)]
    except InvalidRequirement:
        return []  # an odd line of a third party's metadata costs a hint, nothing more


def _asks(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
