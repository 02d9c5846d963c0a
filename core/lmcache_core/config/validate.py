"""From sources to the one configuration, or to one error that names all offenders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from lmcache_core.config.configuration import Configuration
from lmcache_core.config.judge import Verdict, judge
from lmcache_core.config.known import Known
from lmcache_core.config.model import TableOwner
from lmcache_core.config.sources import Sources
from lmcache_core.config.usage import read_usage
from lmcache_core.errors import ConfigError

__all__ = ["Configuration", "TableOwner", "validate"]

_METRICS_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
_SHARED_ROOTS: Final = frozenset({"/", "/tmp", "/var/tmp", "/dev/shm"})  # noqa: S108 - named to warn of them


def validate(
    sources: Sources,
    owners: Sequence[TableOwner],
    *,
    policies: Mapping[str, str],
    schemes: Mapping[str, str],
    unloaded: Mapping[str, str],
) -> Configuration:
    """Judge every key, variable and value.

    Args:
        sources: From `read_sources`.
        owners: Tables of loaded plugins.
        policies: Known fallback policies, each with its plugin.
        schemes: Known URL schemes, each with its plugin.
        unloaded: Plugins that are not loaded, each with the reason.

    Raises:
        ConfigError: One sentence for each offender, all at once.
        PluginError: A plugin's table has the name of one of the core's own keys.
    """
    verdict = judge(
        document=sources.document,
        overrides=sources.overrides,
        environ=sources.environ,
        owners=owners,
        known=Known(policies, schemes, unloaded),
    )
    if verdict.problems:
        raise ConfigError(*map(str, verdict.problems))
    return Configuration(
        values=verdict.values,
        file=sources.file,
        warnings=(*verdict.warnings, *_oddities(verdict, sources.environ)),
        ignored=verdict.services,
        owners={owner.settings.table: (owner.settings, owner.plugin) for owner in owners},
        merged=verdict.merged,
        usage=read_usage(document=sources.document, environ=sources.environ, overrides=sources.overrides),
    )


def _oddities(verdict: Verdict, environ: Mapping[str, str]) -> Iterator[str]:
    values = verdict.values
    stores = values.local_disk is not None or values.all_remotes()
    if not values.local_cpu and stores and not verdict.merged.given(("max_local_cpu_size",)):
        yield (
            f"max_local_cpu_size: is not set; stores load and save through {values.max_local_cpu_size:g} GiB of CPU "
            "memory, the default"
        )
    directory = environ.get(_METRICS_DIRECTORY)
    if directory and str(PurePosixPath(directory)) in _SHARED_ROOTS:
        yield (
            f"{_METRICS_DIRECTORY}: {directory!r} is shared with everything else on this machine; "
            "name an empty directory of its own"
        )
