"""Modules that are not installed, and the line that installs them."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.metadata import Distribution

_CORE_PACKAGE = "lmcache_core"
_REQUIRED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]*")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


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
    requirements = [_parse(text) for text in distribution.requires or ()]
    wanted = [extra for required, extra in requirements if required == _normalized(module)]
    if "" in wanted:
        return f"pip install {name}"  # a plain requirement of it: pip adds what is absent
    if not wanted:
        return f"pip install {name} {module}"
    smallest = min(wanted, key=lambda extra: (sum(extra == other for _, other in requirements), extra))
    return f"pip install '{name}[{smallest}]'"


def _parse(requirement: str) -> tuple[str, str]:
    """Give what one line of ``Requires-Dist`` requires, and the extra it is for, ``""`` for none.

    Loose on purpose, `packaging.requirements` costs every start-up 20 ms: a line that it misreads
    costs a hint, nothing more.
    """
    required = _REQUIRED.match(requirement)
    extra = _EXTRA.search(requirement)
    return _normalized(required.group()) if required else "", extra.group(1) if extra else ""


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
