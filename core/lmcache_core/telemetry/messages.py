"""Every message type of the core. A field's line in ``Attributes`` is its meaning, held by a lock test.

`SCHEMA_VERSION` rises when a field that exists changes its meaning or type. A new field or message
leaves it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lmcache_core.contracts.message import UsageMessage

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class EnvMessage(UsageMessage):
    """What kind of machine it is. Sent once a session.

    Attributes:
        provider: Cloud by its firmware's vendor name: ``aws``, ``gcp``, ``azure``, ... or ``unknown``.
        num_cpu: Logical CPUs.
        cpu_type: Model name of the CPU.
        cpu_family_model_stepping: The three numbers, joined by commas.
        total_memory: Bytes of memory.
        architecture: Machine and word size, joined by a comma.
        platforms: System and the numbers of its release.
        gpu_count: GPUs.
        gpu_type: Model name of the first GPU.
        gpu_memory_per_device: Bytes of the first GPU's memory; 0 when not known.
        source: ``kubernetes``, ``container`` or ``host``.
    """

    provider: str
    num_cpu: int
    cpu_type: str
    cpu_family_model_stepping: str
    total_memory: int
    architecture: str
    platforms: str
    gpu_count: int
    gpu_type: str
    gpu_memory_per_device: int
    source: str


@dataclass(frozen=True)
class EngineMessage(UsageMessage):
    """How an in-process cache is set up. Sent once a session. Addresses of stores are not in it.

    Attributes:
        chunksize: Tokens in one chunk.
        local_device: Where chunks are kept on the machine: ``cpu``, ``disk``, ``cpu+disk`` or ``""``.
        max_local_cache_size: GiB of CPU memory.
        remote_schemes: URL schemes of the stores, joined by commas; no address.
        remote_serde: How chunks are written to the stores.
        pipelined_backend: Whether stores are read while computing.
        save_decode_cache: Whether KV of decoded tokens is stored.
        enable_blending: Whether blending is on.
        blend_recompute_ratio: Share of tokens that blending recomputes.
        blend_min_tokens: Tokens from which on blending is used.
        model_name: Public name of the model, or ``private``.
        world_size: Ranks that split the KV.
        worker_id: Which of them this is.
        kv_dtype: Element type of the KV.
        kv_shape: Layers, 1 or 2 for K and V, chunk tokens, heads and head size, joined by ``x``.
    """

    chunksize: int
    local_device: str
    max_local_cache_size: float
    remote_schemes: str
    remote_serde: str
    pipelined_backend: bool
    save_decode_cache: bool
    enable_blending: bool
    blend_recompute_ratio: float
    blend_min_tokens: int
    model_name: str
    world_size: int
    worker_id: int
    kv_dtype: str
    kv_shape: str


@dataclass(frozen=True)
class MetadataMessage(UsageMessage):
    """When the session began and how long that took. Sent once a session.

    Attributes:
        start_time: Seconds since the epoch.
        duration: Seconds the start-up took.
    """

    start_time: float
    duration: float


@dataclass(frozen=True)
class MPServerMessage(UsageMessage):
    """How a cache server is set up. Sent once a session.

    Attributes:
        lmcache_version: Of this package.
        chunk_size: Tokens in one chunk.
        hash_algorithm: Of chunk keys.
        engine_type: How chunks are matched.
        enable_segmented_prefix: Whether prefixes may have gaps.
        enable_dedup_content: Whether equal content is stored once.
        supported_transfer_mode: How workers hand over KV.
        separate_object_groups: Whether groups of layers are stored apart.
        max_gpu_workers: Threads for device copies.
        max_cpu_workers: Threads for the rest.
        p2p_enabled: Whether servers read from each other.
        l1_size_bytes: Bytes of memory for chunks.
        l1_medium: What memory: ``dram``, ``gds`` or ``dram+devdax``.
        l1_shm_enabled: Whether workers share that memory.
        eviction_policy: Which chunks make room.
        l2_adapter_types: URL schemes of the stores, joined by commas.
        l2_serde_types: How each writes chunks, joined by commas.
        l2_store_policy: What is written to them.
        l2_prefetch_policy: What is read ahead from them.
    """

    lmcache_version: str
    chunk_size: int
    hash_algorithm: str
    engine_type: str
    enable_segmented_prefix: bool
    enable_dedup_content: bool
    supported_transfer_mode: str
    separate_object_groups: bool
    max_gpu_workers: int
    max_cpu_workers: int
    p2p_enabled: bool
    l1_size_bytes: int
    l1_medium: str
    l1_shm_enabled: bool
    eviction_policy: str
    l2_adapter_types: str
    l2_serde_types: str
    l2_store_policy: str
    l2_prefetch_policy: str


@dataclass(frozen=True)
class MPInstanceMessage(UsageMessage):
    """What a model's KV looks like. Sent once a session for each model and world size.

    Attributes:
        model_name: Public name of the model, or ``private``.
        world_size: Ranks that split the KV.
        kv_dtypes: Element types, joined by commas.
        kv_shapes: Dimensions joined by ``x``, groups by ``;``.
        attn_windows: Window of each group in chunks, -1 for all, joined by commas.
        attn_arch: ``full``, ``full+swa``, ``swa``, ``full+linear``, ``linear``, ``dsa`` or ``unknown``.
        use_mla: Whether one latent vector stands for K and V.
        model_type: Of the model's configuration in Hugging Face's words, ``""`` when not told.
    """

    model_name: str
    world_size: int
    kv_dtypes: str
    kv_shapes: str
    attn_windows: str
    attn_arch: str
    use_mla: bool
    model_type: str


@dataclass(frozen=True)
class ModelUsageMessage(UsageMessage):
    """What one interval of one model's use came to. Counts are of this interval.

    Attributes:
        model_name: Public name of the model, ``private``, or ``other`` beyond the first 64.
        attn_arch: As in `MPInstanceMessage`.
        interval_lookups: Lookups.
        interval_num_requested_tokens: Tokens they asked for.
        interval_num_lookup_hit_tokens: Tokens they found.
        interval_num_l1_hit_tokens: Of these, tokens in CPU memory.
        interval_num_l2_hit_tokens: Of these, tokens in the stores behind it.
        interval_num_stored_tokens: Tokens stored, once a request.
        interval_num_hit_tokens: Tokens retrieved, once a request.
        interval_stored_kv_size: Bytes stored.
        sequence_number: Of the interval, as in `ContinuousContextMessage`.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "model-usage"
    TAGS: ClassVar[tuple[str, ...]] = ("model_name", "attn_arch")

    model_name: str
    attn_arch: str
    interval_lookups: int
    interval_num_requested_tokens: int
    interval_num_lookup_hit_tokens: int
    interval_num_l1_hit_tokens: int
    interval_num_l2_hit_tokens: int
    interval_num_stored_tokens: int
    interval_num_hit_tokens: int
    interval_stored_kv_size: int
    sequence_number: int
    uptime_seconds: float


@dataclass(frozen=True)
class L1UsageMessage(UsageMessage):
    """How full the CPU memory is.

    Attributes:
        active_seconds: Since the last interval.
        bytes_used: Bytes in use; -1 when they could not be read.
        capacity_bytes: Bytes there are; 0 when they could not be read.
        sequence_number: Of the interval, as in `ContinuousContextMessage`.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "l1-usage"

    active_seconds: float
    bytes_used: int
    capacity_bytes: int
    sequence_number: int
    uptime_seconds: float


@dataclass(frozen=True)
class L2ConnectorUsageMessage(UsageMessage):
    """What one interval of one kind of store came to; an idle one reports too.

    Attributes:
        l2_name: URL scheme of the store.
        active_seconds: Since the last interval.
        interval_stored_bytes: Bytes written.
        interval_store_succeeded_keys: Chunks written.
        interval_store_failed_keys: Chunks that could not be written.
        interval_load_submitted_keys: Chunks asked for.
        interval_load_submitted_bytes: Bytes they come to.
        bytes_used: Bytes in use in all stores of the kind; -1 when not known.
        capacity_bytes: Bytes there are; 0 when not known or unbounded.
        unbounded_adapters: Stores of the kind without a bound.
        sequence_number: Of the interval, as in `ContinuousContextMessage`.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "l2-usage"
    TAGS: ClassVar[tuple[str, ...]] = ("l2_name",)

    l2_name: str
    active_seconds: float
    interval_stored_bytes: int
    interval_store_succeeded_keys: int
    interval_store_failed_keys: int
    interval_load_submitted_keys: int
    interval_load_submitted_bytes: int
    bytes_used: int
    capacity_bytes: int
    unbounded_adapters: int
    sequence_number: int
    uptime_seconds: float


@dataclass(frozen=True)
class L2UsageMessage(UsageMessage):
    """What one interval of all stores behind CPU memory came to.

    Hits are of leading chunks: what stands behind a chunk that is missing does not count.

    Attributes:
        interval_l2_lookup_keys: Chunks of lookups that CPU memory did not have; what the next two are measured against.
        interval_l2_loaded_keys: Chunks loaded.
        interval_l2_load_failed_keys: Chunks whose load was begun and gave nothing.
        interval_l2_prefetch_failures_l1_oom: Loads given up for want of memory.
        interval_l2_prefetch_failures_l1_contended: Loads given up because memory was held by others.
        interval_l2_prefetch_failures_not_found: Loads of chunks that were no longer there.
        interval_l2_prefetch_failures_other: Loads given up for any other reason.
        interval_l2_evicted_keys: Chunks that left the stores to make room.
        sequence_number: Of the interval, as in `ContinuousContextMessage`.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "l2-usage"

    interval_l2_lookup_keys: int
    interval_l2_loaded_keys: int
    interval_l2_load_failed_keys: int
    interval_l2_prefetch_failures_l1_oom: int
    interval_l2_prefetch_failures_l1_contended: int
    interval_l2_prefetch_failures_not_found: int
    interval_l2_prefetch_failures_other: int
    interval_l2_evicted_keys: int
    sequence_number: int
    uptime_seconds: float


@dataclass(frozen=True)
class CacheLifespanMessage(UsageMessage):
    """How long chunks lived in CPU memory before they were evicted. In-process caches only.

    Attributes:
        cache_lifespan_histogram: Upper bound in minutes to evicted chunks; longer ones under ``+Inf``.
        sequence_number: Of the interval, as in `ContinuousContextMessage`.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "cache-lifespan"

    cache_lifespan_histogram: dict[str, int]
    sequence_number: int
    uptime_seconds: float


@dataclass(frozen=True)
class ReusePatternMessage(UsageMessage):
    """How chunks are used again, from a sample of them. Counts are of this interval and of sampled chunks.

    Multiply by 1 / `sample_rate` for all chunks. Chunks retired by the table's bound retire too early:
    they make lifespans look short, so they are counted apart.

    Attributes:
        sample_rate: Share of all chunks that is tracked.
        sampled_accesses: Accesses to sampled chunks.
        seen_before_accesses: Of these, accesses to a chunk that was seen before: the hits of a cache without limits.
        stored_accesses: Of those, accesses to a chunk that the cache had stored.
        tracked: Chunks in the table at the end of the interval.
        horizon_seconds: How far back the table remembers; shorter after a restart.
        retired_idle: Chunks retired because nobody used them for long.
        retired_by_cap: Chunks retired because the table was full.
        lifespan_histogram: Upper bound in seconds of last access minus first reuse, to retired chunks.
        inter_reuse_gap_histogram: Upper bound in seconds between two accesses, to reuses.
        reuse_lifespan_histogram: ``<upper bound of reuses>|<upper bound of lifespan in seconds>`` to retired chunks.
        sequence_number: Of the interval, as in `ContinuousContextMessage`.
        uptime_seconds: Since the reporter started.
    """

    ENDPOINT: ClassVar[str] = "reuse-pattern"

    sample_rate: float
    sampled_accesses: int
    seen_before_accesses: int
    stored_accesses: int
    tracked: int
    horizon_seconds: float
    retired_idle: int
    retired_by_cap: int
    lifespan_histogram: dict[str, int]
    inter_reuse_gap_histogram: dict[str, int]
    reuse_lifespan_histogram: dict[str, int]
    sequence_number: int = 0
    uptime_seconds: float = 0.0
