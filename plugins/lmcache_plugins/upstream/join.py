"""Adds a folder of this project to the search path of packages of LMCache, before or after their import."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final

_HERE = Path(__file__).parent

JOINED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lmcache.v1.health_monitor.checks": str(_HERE / "checks"),
        "lmcache.v1.storage_backend.connector": str(_HERE / "connectors"),
    }
)
"""Packages whose modules LMCache 0.5 scans, for checks and for adapters; and the folder that joins each."""


class JoiningFinder(MetaPathFinder):
    """Lets the other finders find a package, and adds a folder to its search path.

    Threads that join at the same moment may each leave one: they pass each other over, and the folder is added once.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the joined packages; None for all others."""
        folder = JOINED.get(fullname)
        if folder is None:
            return None
        for finder in list(sys.meta_path):
            # Python passes over finders of the old protocol, which have no find_spec, and so does this.
            find = None if isinstance(finder, JoiningFinder) else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.submodule_search_locations is not None:
                    spec.submodule_search_locations.append(folder)
                return spec
        return None


def is_joined() -> bool:
    """Tell whether the folders are, or will be, in the search paths."""
    return any(isinstance(finder, JoiningFinder) for finder in sys.meta_path)


def join() -> None:
    """Add the folders to packages that are imported already, and to the others when they will be."""
    sys.meta_path.insert(0, JoiningFinder())
    for name, folder in JOINED.items():
        package = sys.modules.get(name)
        if package is not None and folder not in package.__path__:
            package.__path__.append(folder)


def part() -> None:
    """Take the folders out, and forget the modules that were found in them."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, JoiningFinder)]
    for name, folder in JOINED.items():
        package = sys.modules.get(name)
        if package is None:
            continue
        package.__path__[:] = [place for place in package.__path__ if place != folder]
        for path in Path(folder).glob("[!_]*.py"):
            sys.modules.pop(f"{name}.{path.stem}", None)
            vars(package).pop(path.stem, None)
