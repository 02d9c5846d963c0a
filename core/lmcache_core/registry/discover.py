"""Finding plugins: one scan of the installed distributions' entry points."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import Distribution, EntryPoint

from lmcache_core.errors import PluginError
from lmcache_core.hookspecs import ENTRY_POINT_GROUP

log = logging.getLogger(__name__)

CORE_DISTRIBUTION = "lmcache-core"
UNKNOWN_DISTRIBUTION = "unknown distribution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One discovered plugin, not imported yet.

    Attributes:
        name: Entry-point name.
        distribution: Name of the distribution it came with.
        version: ``""`` where the distribution's metadata has none.
        builtin: Whether it came with this project.
        entry_point: How to import it.
    """

    name: str
    distribution: str
    version: str
    builtin: bool
    entry_point: EntryPoint

    @property
    def origin(self) -> str:
        """Distribution and version, as error texts show them."""
        return f"{self.distribution} {self.version}".rstrip()

    def error(self, reason: str) -> PluginError:
        """Make an error that names this plugin."""
        return PluginError(plugin=self.name, origin=self.origin, reason=reason)


def scan_entry_points() -> Sequence[EntryPoint]:
    """Read the entry points of all installed distributions, once.

    A distribution whose metadata is broken is left out with a warning; it must not hide the others.
    """
    try:
        return tuple(metadata.entry_points(group=ENTRY_POINT_GROUP))
    except Exception as error:  # noqa: BLE001 - any package on the path may be broken in any way
        log.warning("scanning all distributions failed, reading them one by one: %s", error)
        return _scan_one_by_one()


def find_plugins(entry_points: Iterable[EntryPoint]) -> list[Found]:
    """Tell who each entry point belongs to, sorted by name, built-in before third party.

    The order is the same whatever order the distributions were installed in.
    """
    found = {_identify(entry) for entry in entry_points if entry.group == ENTRY_POINT_GROUP}
    return sorted(
        found, key=lambda one: (one.name, not one.builtin, one.distribution, one.version, one.entry_point.value)
    )


def _scan_one_by_one() -> tuple[EntryPoint, ...]:
    seen: set[str] = set()
    entries: list[EntryPoint] = []
    for distribution in metadata.distributions():
        name, own = _read(distribution)
        if name not in seen:  # the first on the path shadows the others, as in entry_points()
            entries.extend(own)
        seen.add(name)
    return tuple(entries)


def _read(distribution: Distribution) -> tuple[str, Sequence[EntryPoint]]:
    try:
        name = _normalized(distribution.metadata["Name"])
        return name, tuple(distribution.entry_points.select(group=ENTRY_POINT_GROUP))
    except Exception as error:  # noqa: BLE001 - any package on the path may be broken in any way
        log.warning("a distribution with broken metadata in %s is skipped: %s", distribution.locate_file(""), error)
        return "", ()


def _identify(entry: EntryPoint) -> Found:
    described = None if entry.dist is None else entry.dist.metadata
    name = (described and described["Name"]) or UNKNOWN_DISTRIBUTION
    version = (described and described["Version"]) or ""
    builtin = _normalized(name) == CORE_DISTRIBUTION
    return Found(name=entry.name, distribution=name, version=version, builtin=builtin, entry_point=entry)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
