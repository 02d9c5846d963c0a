"""What checks and policies may ask of the running cache, as protocols, so that no arrow runs back up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.contracts.storage import BackendUsage, Frame, LoadResult


class HealthOptions(Protocol):
    """Health keys of ``[extra_config]``, or of one remote's own table that overrides it.

    Seconds are above 0; defaults are LMCache's.
    """

    @property
    def ping_interval(self) -> float:
        """Seconds between two rounds of checks; 30."""

    @property
    def ping_timeout(self) -> float:
        """Seconds one ping, or one step of the round trip, may take; 5."""

    @property
    def get_blocking_failed_threshold(self) -> int:
        """Failed loads within one round from which on the remote counts as failed; 10."""

    @property
    def waiting_time_for_recovery(self) -> float:
        """Seconds after such a failure before a recovery is tried; 300."""

    @property
    def fallback_policy(self) -> str | Sequence[str]:
        """Name of the policy to use while a check fails, or several, a ladder; ``recompute``."""

    @property
    def policy_ladder_secs(self) -> float:
        """Seconds that one rung of a ladder may last while the check still fails; 30."""


class Hold(Protocol):
    """One owner's hold on a backend."""

    @property
    def reason(self) -> str:
        """One sentence; ``""`` for none."""

    @property
    def reads(self) -> bool:
        """Whether lookups and loads leave the backend out."""

    @property
    def writes(self) -> bool:
        """Whether stores leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUsage:
    """How tier 0 fares, counted at one moment.

    Attributes:
        capacity_bytes: Of the arena.
        used_bytes: In blocks.
        free_bytes: In free extents; with `used_bytes` it makes the capacity.
        chunks: That can be found.
        leases: Of lookups whose retrieve has not come yet.
        overdue_s: For how long the oldest lease has been past its time; 0 for none.
        lent_blocks: Given out since start.
        refused_blocks: Not given out since start, as everything was leased.
    """

    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    chunks: int
    leases: int
    overdue_s: float
    lent_blocks: int
    refused_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUsage:
    """How a tenant fares in tier 0, or several under one label.

    Attributes:
        label: Never its salt, nor the salt's hash.
        bytes_used: In blocks, those that are leased or being filled included.
        quota_bytes: Most that they may be, of each tenant where the label stands for several; 0 for no bound.
        chunks: That can be found.
        evicted_chunks: That made room for its own or others' chunks, since start.
        refused_blocks: Not given to it since start, as all it may have was leased.
        requested_tokens: In its lookups, since start.
        hit_tokens: Of them found.
    """

    label: str
    bytes_used: int
    quota_bytes: int
    chunks: int
    evicted_chunks: int
    refused_blocks: int
    requested_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBehindUsage:
    """How the queue in front of one backend fares.

    Attributes:
        backend: Its name.
        waiting_chunks: In the queue.
        limit_chunks: Of the queue; more are shed.
        shed_chunks: That found it full, since start.
        dead_threads: Names of its threads that ended although nobody stopped them.
    """

    backend: str
    waiting_chunks: int
    limit_chunks: int
    shed_chunks: int
    dead_threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadReport:
    """How one background thread fares.

    Attributes:
        name: Of the thread.
        level: ``critical``, ``high``, ``medium`` or ``low``: how much the cache depends on it.
        is_alive: False for one that ended although nobody stopped it.
        silent_s: Since it last ended a piece of its work, or took it up where it has none to do.
        interval_s: Longest that it usually takes from one to the next.
        reason: Why it ended or what failed last; ``""`` for nothing.
    """

    name: str
    level: str
    is_alive: bool
    silent_s: float
    interval_s: float
    reason: str = ""


class Tier(Protocol):
    """One guarded store behind tier 0. Every call ends at its timeout, whatever the store does."""

    @property
    def name(self) -> str:
        """Unique, such as ``RemoteBackend`` or ``RemoteBackend-<name of [[remotes]]>``."""

    @property
    def url(self) -> str:
        """Address without credentials."""

    @property
    def options(self) -> HealthOptions:
        """The remote's own health keys over the global ones."""

    @property
    def load_failures(self) -> int:
        """Loads that raised or timed out since start; misses and answers from local state never count."""

    def ping(self, *, timeout_s: float) -> float:
        """Ask the store; give the milliseconds it took. Feeds the ``remote_ping_*`` metrics.

        Raises:
            BackendTimeoutError: No answer in time; error code -1.
            BackendError: Anything else; error code -2.
        """

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, timeout_s: float) -> None:
        """Store past the bypass, for probes. Raises BackendError."""

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, timeout_s: float) -> list[LoadResult]:
        """Load past the bypass, for probes. After a raise, do not reuse the buffers. Raises BackendError."""

    def delete(self, keys: Sequence[ChunkKey], *, timeout_s: float) -> int:
        """Delete past the bypass, for probes. Raises BackendError."""

    @property
    def refused_writes(self) -> int:
        """Stores of live traffic that the store had no room for, since start."""

    def usage(self) -> BackendUsage:
        """Tell how full the store is."""

    def notices(self) -> Sequence[str]:
        """Say what will surprise later although the store works now; see `StorageBackend.notices`."""


class StorageControl(Protocol):
    """The switches a fallback policy may throw. Each hold has an owner and is undone by its owner alone."""

    def backend_names(self) -> Sequence[str]:
        """Names of all tiers, tier 0 first."""

    def set_backend_bypass(
        self, name: str, bypassed: bool, *, owner: str, reason: str = "", reads: bool = True, writes: bool = True
    ) -> None:
        """Leave a backend out of reads and writes, or end this owner's hold on it.

        A backend is bypassed while at least one owner holds it, so that a recovery never undoes
        an operator's bypass.

        Args:
            name: Of the backend.
            bypassed: False ends this owner's hold.
            owner: Who holds it, such as ``check:<name>`` or ``operator:<name>``.
            reason: One sentence for people.
            reads: Whether lookups and loads leave it out.
            writes: Whether stores leave it out.

        Raises:
            KeyError: No such backend.
        """

    def holds(self, name: str) -> Mapping[str, Hold]:
        """Who holds a backend out, by owner; empty for one that nobody holds, or that cannot be held."""

    def serving(self) -> Sequence[str]:
        """Names of the tiers that reads may be answered from now: tier 0 only while it keeps chunks."""

    def hold_hot_cache(self, *, owner: str) -> None:
        """Make tier 0 keep chunks (`use_hot`) while this owner holds it."""

    def release_hot_cache(self, *, owner: str) -> int:
        """End the hold. When `use_hot` thereby goes back to off, clear tier 0; give the chunks cleared."""


class CacheView(Protocol):
    """What `HealthCheck.create` gets."""

    @property
    def tiers(self) -> Sequence[Tier]:
        """The remote and disk stores behind tier 0, in order."""

    @property
    def storage(self) -> StorageControl:
        """The switches."""

    @property
    def health_options(self) -> HealthOptions:
        """The global health keys."""

    def settings(self, table: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""

    def local_usage(self) -> LocalUsage:
        """Tell how tier 0 fares."""

    def write_behind(self) -> Sequence[WriteBehindUsage]:
        """Tell how the queue in front of each store fares."""

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how the background threads fare, those of `write_behind` left out."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of this instance: ``instance_id``, ``model_name``, ``worker_id``, ``role``."""
