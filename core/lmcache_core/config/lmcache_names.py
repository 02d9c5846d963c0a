"""Names that LMCache knows and this project does not use, and names that LMCache itself has retired.

Source: the key definitions and the configuration reference of LMCache 0.5.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

UNUSED_KEYS: Final = frozenset(
    """
    app_id audit_actor_path audit_actual_remote_url blend_check_layers blend_min_tokens blend_recompute_ratio
    blend_recompute_ratios blend_special_str blend_thresholds cache_policy
    chunk_statistics_auto_exit_target_unique_chunks
    chunk_statistics_auto_exit_timeout_hours chunk_statistics_auto_start_statistics chunk_statistics_strategy
    controller_pull_url controller_reply_url controller_url cost_aware_ewma_alpha cost_aware_half_life_seconds
    cufile_buffer_size enable_async_loading enable_blending enable_chunk_statistics enable_controller
    enable_hidden_state_cache enable_kv_events enable_lazy_memory_allocator enable_nixl enable_p2p enable_pd
    enable_scheduler_bypass_lookup enable_xpyd external_backends external_lookup_client gds_backend gds_buffer_size
    gds_path gds_path_sharding hidden_state_layers hidden_states_retrieve_mode hit_miss_ratio
    internal_api_server_include_index_list internal_api_server_socket_path_prefix lazy_memory_expand_trigger_ratio
    lazy_memory_initial_ratio lazy_memory_safe_size lazy_memory_step_ratio lmcache_worker_heartbeat_delay_time
    lmcache_worker_heartbeat_time lmcache_worker_ids lmcache_worker_port lmcache_worker_ports
    local_cpu_use_hugepages local_disk_path_sharding lookup_server_worker_ids lookup_timeout_ms maru_path
    maru_pool_size max_hidden_state_cpu_size min_retrieve_tokens mp_host mp_port nixl_backends nixl_buffer_device
    nixl_buffer_size nixl_enable_gc nixl_peer_alloc_port nixl_peer_host nixl_peer_init_port nixl_peer_port
    nixl_proxy_host nixl_proxy_port nixl_receiver_host nixl_receiver_port nixl_role numa_mode p2p_host
    p2p_init_ports p2p_lookup_ports pd_allocation_timeout_sec pd_backend_mode pd_bidirectional pd_buffer_device
    pd_buffer_size pd_condition_poll_interval_sec pd_max_prefill_len pd_peer_alloc_port pd_peer_host
    pd_peer_init_port pd_peer_query_port pd_proxy_host pd_proxy_port pd_role pd_shutdown_timeout_sec
    pd_skip_proxy_notification peer_init_ports peer_lookup_ports pin_check_interval_sec plugin_locations
    pre_caching_hash_algorithm priority_limit py_enable_gc remote_config_url remote_storage_plugins
    reserve_local_cpu_size retrieve_locations run_script_api_enabled runtime_plugin_locations save_decode_cache
    script_allowed_imports storage_plugins store_location transfer_channel use_gds use_gpu_connector_v3 use_layerwise
    weka_path
    """.split()  # noqa: SIM905 - a hundred names read better without quotes and commas
)
"""Top-level keys of LMCache that have no counterpart here."""

UNUSED_EXTRA_KEYS: Final = frozenset(
    """
    audit_actual_remote_url audit_calc_checksum audit_exclude_cmds audit_verify_checksum
    create_lookup_server_only_on_worker_0_for_mla cufile_buffer_size enable_nixl_storage
    enable_shared_cpu_cache first_rank_max_local_cpu_size force_store_wait fs_connector_read_ahead_size
    fs_connector_relative_tmp_dir fs_connector_use_odirect gds_io_threads gpu_to_numa_mapping lookup_backoff_time
    lookup_server_worker_ids nixl_backend nixl_backend_params nixl_file_pool_size nixl_path
    nixl_pool_size nixl_presence_cache nixl_presence_cache_only nixl_use_hugepages p2p_max_retry_count
    p2p_socket_recv_timeout_ms p2p_socket_send_timeout_ms remote_enable_mla_worker_id_as0
    s3_enable_s3express s3_file_prefix s3_max_inflight_reqs s3_max_io_concurrency s3_num_io_threads
    s3_prefer_http2 s3_region save_only_first_rank tag_keys use_odirect
    """.split()  # noqa: SIM905 - as above
)
"""Keys of LMCache's ``extra_config`` that have no counterpart here."""

MOONCAKE_KEYS: Final = frozenset(
    """
    device_name global_segment_size local_buffer_size local_hostname master_server_address metadata_server
    mooncake_prefer_local_alloc protocol save_chunk_meta storage_root_dir transfer_timeout use_exists_sync
    """.split()  # noqa: SIM905 - as above
)
"""Keys of LMCache's ``extra_config`` that its Mooncake connector reads."""

UNUSED_EXTRA_PREFIXES: Final = ("histogram_bucket_", "remote_storage_plugin.")

UNUSED_VARIABLES: Final = frozenset(
    """
    LMCACHE_CONTROLLER_CONFIG_FILE LMCACHE_DEVICE_BACKEND LMCACHE_DISABLE_BANNER LMCACHE_ENABLE_PROFILING
    LMCACHE_FORCE_SKIP_SAVE LMCACHE_GPU_STAGING_BUFFER_BYTES LMCACHE_MP_TRANSFER_MODE LMCACHE_MQ_TIMEOUT
    LMCACHE_MUSA_HANDLE_TRANSFER LMCACHE_MUSA_NATIVE_KV_TRANSFER LMCACHE_OFFLOAD_RPC_PORT LMCACHE_PLUGIN_CONFIG
    LMCACHE_PLUGIN_ROLE LMCACHE_PLUGIN_WORKER_COUNT LMCACHE_PLUGIN_WORKER_ID LMCACHE_ROCM_ENABLE_BATCH_MEMCPY
    LMCACHE_SERVER_URL
    """.split()  # noqa: SIM905 - as above
)
"""Variables of LMCache that are no configuration keys."""

UNUSED_VARIABLE_PREFIXES: Final = (
    "LMCACHE_AEROSPIKE_",
    "LMCACHE_COORDINATOR_",
    "LMCACHE_EC_",
    "LMCACHE_REQUEST_TELEMETRY_",
    "LMCACHE_RESP_",
    "LMCACHE_RUNTIME_PLUGIN_",
)

FOREIGN_VARIABLES: Final = frozenset({"REDIS_SERVICE_NAME", "REDIS_TIMEOUT"})
"""Variables outside the prefix that LMCache's Redis connector reads."""

RETIRED_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "local_device": "use local_cpu (true or false)",
        "pipelined_backend": "writes are always behind the request; use write_behind_chunks for their bound",
        "lookup_url": "use remote_url",
        "distributed_url": "use remote_url",
        "error_handling": "errors of a store are always handled; use extra_config.fallback_policy to choose how",
    }
)
"""Keys of LMCache's first schema, and what to write instead."""

RETIRED_VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {"LMCACHE_USE_EXPERIMENTAL": "LMCache has retired it and nothing takes its place; remove it"}
)


def is_unused_extra(key: str) -> bool:
    """Tell whether LMCache reads this key of ``extra_config``."""
    return key in UNUSED_EXTRA_KEYS or key in MOONCAKE_KEYS or key.startswith(UNUSED_EXTRA_PREFIXES)


def is_unused_variable(name: str) -> bool:
    """Tell whether LMCache reads this variable and this project does not."""
    key = name.removeprefix("LMCACHE_").lower()
    return key in UNUSED_KEYS or name in UNUSED_VARIABLES or name.startswith(UNUSED_VARIABLE_PREFIXES)
