"""Keys that must fit each other, and names that plugins must know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmcache_core.config.known import Known
from lmcache_core.config.model import CoreConfig, ExtraConfig
from lmcache_core.config.origin import KeyPath

_EXTRA = "extra_config"
_LOCAL_CPU = "local_cpu"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit.

    Attributes:
        paths: The keys involved; the sentence is about the first one that the user wrote.
        sentence: What is wrong.
    """

    paths: tuple[KeyPath, ...]
    sentence: str


def findings(config: CoreConfig, known: Known | None) -> Iterator[Finding]:
    """Give everything that does not fit; names of plugins are judged once plugins are known."""
    yield from _disk(config)
    yield from _staging(config)
    yield from _ping_times(config)
    yield from _remote_names(config)
    if known is not None:
        yield from _policies(config, known)


def _disk(config: CoreConfig) -> Iterator[Finding]:
    """The disk tier needs a place and a size."""
    if config.local_disk is not None and config.max_local_disk_size == 0:
        yield Finding(
            (("local_disk",), ("max_local_disk_size",)), "needs max_local_disk_size, the GiB it may take, above 0"
        )
    if config.local_disk is None and config.max_local_disk_size > 0:
        yield Finding((("max_local_disk_size",), ("local_disk",)), "needs local_disk, the directory to keep chunks in")


def _staging(config: CoreConfig) -> Iterator[Finding]:
    """Every store loads and saves through CPU memory."""
    if config.max_local_cpu_size > 0:
        return
    yield Finding(
        (("max_local_cpu_size",),),
        "must be greater than 0, got 0: every store loads and saves through this memory, also with local_cpu = false",
    )
    for path, extra in _extras(config):
        if extra.fallback_policy == _LOCAL_CPU:
            yield Finding(((*path, "fallback_policy"),), f"{_LOCAL_CPU!r} needs max_local_cpu_size greater than 0")


def _ping_times(config: CoreConfig) -> Iterator[Finding]:
    """A ping ends before the next round begins."""
    for path, extra in _extras(config):
        if extra.ping_timeout >= extra.ping_interval:
            yield Finding(
                ((*path, "ping_timeout"), (*path, "ping_interval")),
                f"ping_timeout ({extra.ping_timeout:g}) must be less than ping_interval ({extra.ping_interval:g})",
            )


def _remote_names(config: CoreConfig) -> Iterator[Finding]:
    """Names of remotes are labels of metrics: unique, also for readers who do not see case."""
    seen: dict[str, str] = {}
    for index, remote in enumerate(config.remotes):
        if remote.name.casefold() in seen:
            other = seen[remote.name.casefold()]
            text = f"{remote.name!r} is the name of another remote"
            text += "; rename one" if other == remote.name else f", written {other!r}; rename one"
            yield Finding((("remotes", index, "name"),), text)
        seen.setdefault(remote.name.casefold(), remote.name)


def _policies(config: CoreConfig, known: Known) -> Iterator[Finding]:
    """A fallback policy is one that a loaded plugin brings."""
    for path, extra in _extras(config):
        problem = known.policy_problem(extra.fallback_policy)
        if problem is not None:
            yield Finding(((*path, "fallback_policy"),), problem)


def _extras(config: CoreConfig) -> Iterator[tuple[KeyPath, ExtraConfig]]:
    yield (_EXTRA,), config.extra_config
    for index, remote in enumerate(config.remotes):
        yield ("remotes", index, _EXTRA), remote.extra_config
