"""Keys that must fit each other, and names that plugins must know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmcache_core.config.known import Known
from lmcache_core.config.model import CoreConfig, ExtraConfig
from lmcache_core.config.origin import KeyPath
from lmcache_core.config.policies import policy_names

_EXTRA = "extra_config"
_CHECKS = "checks"
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
    yield from _tenants(config)
    yield from _checks(config)
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
    for path, names in _ladders(config):
        if _LOCAL_CPU in names:
            yield Finding((path,), f"{_LOCAL_CPU!r} needs max_local_cpu_size greater than 0")


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


def _tenants(config: CoreConfig) -> Iterator[Finding]:
    """A tenant has one name and one salt, and shares neither. Salts are secrets: no sentence holds one."""
    names: set[str] = set()
    salts: dict[str, str] = {}
    for index, tenant in enumerate(config.tenants):
        path: KeyPath = ("tenants", index)
        if tenant.name.casefold() in names:
            yield Finding(((*path, "name"),), f"{tenant.name!r} is the name of another tenant; rename one")
        elif tenant.name.casefold() == "other":
            yield Finding(((*path, "name"),), "'other' stands for all tenants without an entry; choose another name")
        names.add(tenant.name.casefold())
        given = sum(one is not None for one in (tenant.salt, tenant.salt_hash))
        if tenant.name == "default" and given:
            yield Finding((path,), "'default' stands for requests without a salt; give it none, or choose another name")
        elif tenant.name != "default" and given != 1:
            yield Finding((path,), "needs either salt or salt_hash")
        elif tenant.known_hash in salts:
            yield Finding((path,), f"has the salt of tenant {salts[tenant.known_hash]!r}; a salt is one tenant's")
        salts.setdefault(tenant.known_hash, tenant.name)


def _checks(config: CoreConfig) -> Iterator[Finding]:
    """Checks are the instance's, not a remote's; while one fails it is not asked less often."""
    for index, table in enumerate(config.extra_config.checks):
        if table.interval is not None and table.fast_interval is not None and table.fast_interval > table.interval:
            path: KeyPath = (_EXTRA, _CHECKS, index)
            yield Finding(
                ((*path, "fast_interval"), (*path, "interval")),
                f"fast_interval ({table.fast_interval:g}) must not be more than interval ({table.interval:g})",
            )
    for number, remote in enumerate(config.remotes):
        if remote.extra_config.checks != config.extra_config.checks:
            sentence = "belongs into the global [extra_config]; name the remote's check in match"
            yield Finding((("remotes", number, _EXTRA, _CHECKS),), sentence)


def _policies(config: CoreConfig, known: Known) -> Iterator[Finding]:
    """A fallback policy is one that a loaded plugin brings."""
    for path, names in _ladders(config):
        problem = next((text for name in names if (text := known.policy_problem(name)) is not None), None)
        if problem is not None:
            yield Finding((path,), problem)


def _ladders(config: CoreConfig) -> Iterator[tuple[KeyPath, tuple[str, ...]]]:
    """Every key that names policies."""
    for path, extra in _extras(config):
        yield (*path, "fallback_policy"), policy_names(extra.fallback_policy)
    for index, table in enumerate(config.extra_config.checks):
        yield (_EXTRA, _CHECKS, index, "fallback_policy"), policy_names(table.fallback_policy)


def _extras(config: CoreConfig) -> Iterator[tuple[KeyPath, ExtraConfig]]:
    yield (_EXTRA,), config.extra_config
    for index, remote in enumerate(config.remotes):
        yield ("remotes", index, _EXTRA), remote.extra_config
