"""A check that a plugin brings, and what it said when it was asked for its name and its terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmcache_core.config.checks import CheckTable, fits
from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.errors import PluginError
from lmcache_core.health.terms import CheckTerms, TermReader
from lmcache_core.threads import describe_error


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a check said of itself.

    Attributes:
        name: Its name.
        reader: Reads its terms again, at each run.
        terms: As they were.
    """

    name: str
    reader: TermReader
    terms: CheckTerms


@dataclass(frozen=True, slots=True)
class Candidate:
    """A check, asked once: who uses it afterwards runs no code of its plugin's.

    Attributes:
        plugin: Who declared it.
        origin: The plugin's distribution and version.
        check: The check.
        said: What it said, or why it cannot be used.
    """

    plugin: str
    origin: str
    check: HealthCheck
    said: Introduction | PluginError

    @classmethod
    def ask(
        cls, plugin: str, origin: str, check: HealthCheck, options: HealthOptions, tables: Sequence[CheckTable]
    ) -> Candidate:
        """Ask a check. That is code of its plugin's, and may take its time; it cannot raise.

        Args:
            plugin: Who declared it.
            origin: The plugin's distribution and version.
            check: The check.
            options: Defaults of its terms.
            tables: ``[[extra_config.checks]]``.
        """
        return cls(plugin, origin, check, _introduce(plugin, origin, check, options, tables))


def _introduce(
    plugin: str, origin: str, check: HealthCheck, options: HealthOptions, tables: Sequence[CheckTable]
) -> Introduction | PluginError:
    try:
        name = _name_of(check)
        reader = TermReader(options, _configured(name, tables))
        return Introduction(name, reader, reader.read(check))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the border of one plugin's check
        refusal = PluginError(
            plugin=plugin,
            origin=origin,
            reason=f"health check {type(check).__name__} cannot be used: {describe_error(error)}",
        )
        refusal.__cause__ = error
        return refusal


def _configured(name: str, tables: Sequence[CheckTable]) -> Mapping[str, object]:
    """What the configuration says of a check; later entries win."""
    said: dict[str, object] = {}
    for table in tables:
        if fits(table.match, name):
            said.update(table.terms())
    return said


def _name_of(check: HealthCheck) -> str:
    name: object = check.name()
    if not isinstance(name, str) or not name:
        raise ValueError(f"name() must give a name, got {name!r}")
    return name
