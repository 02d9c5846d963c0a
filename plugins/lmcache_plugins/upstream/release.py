"""Which LMCache is installed, found without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lmcache_plugins.upstream.join import JOINED

PACKAGE: Final = "lmcache"
SUPPORTED: Final = "0.5.x"
_SUPPORTED_VERSION = re.compile(r"0\.5\.\d")


@dataclass(frozen=True, slots=True)
class Release:
    """An installed LMCache.

    Attributes:
        version: Of its distribution; ``"of unknown version"`` where it has no metadata.
        folder: Of its package.
    """

    version: str
    folder: Path


def find_release() -> Release | None:
    """Find LMCache; None where it is not installed. A folder that is only called so is not it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return Release(version, Path(next(iter(spec.submodule_search_locations))))


def objection(release: Release) -> str:
    """Say why a release cannot be joined; ``""`` where it can."""
    if not _SUPPORTED_VERSION.match(release.version):
        return f"only {SUPPORTED} is known to it"
    for name in JOINED:
        if not release.folder.joinpath(*name.split(".")[1:], "__init__.py").is_file():
            return f"it has no package {name}"
    return ""
