"""Configurations that users posted: what the loader and the converter make of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmcache_core.config.convert import Conversion
from lmcache_core.config.origin import key_text
from lmcache_core.config.toml_text import dump_toml

FOLDER = Path(__file__).resolve().parents[2] / "data" / "user-configs"
OURS = frozenset({"file", "redis", "rediss"})
Problems = Callable[..., list[str]]


def old(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text())


def as_written(name: str) -> str:
    """The YAML's keys as TOML, unconverted, as somebody would type them over; null is left out."""
    return dump_toml({key: value for key, value in old(name).items() if value is not None})


def converted(name: str) -> tuple[str, list[str]]:
    conversion = Conversion(OURS)
    conversion.convert(old(name))
    return dump_toml(conversion.tree), [f"{key_text(path)}: {note}" for path, note in conversion.notes]


def variables(name: str) -> dict[str, str]:
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_each_file_names_its_source(file: Path) -> None:
    assert "#" in file.read_text().splitlines()[0]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_no_value_of_a_text_key_is_in_the_notes(name: str) -> None:
    notes = "\n".join(converted(name)[1])
    extra = old(name).get("extra_config") or {}
    assert not any(str(value) in notes for value in extra.values() if isinstance(value, str) and len(value) > 5)


def test_1244_the_path_never_reached_the_process(judge) -> None:
    assert judge(None).file is None
    text, notes = converted("lmcache-1244-disk-offload.yaml")
    assert notes == []
    assert judge(text).values.local_disk_path == Path("/mnt/disk/lmcache")


def test_512_keys_of_two_generations_are_named_with_their_replacement(problems: Problems) -> None:
    assert problems(as_written("lmcache-512-redis-blending.yaml")) == [
        "lmcache.toml:2: local_device: retired by LMCache; use local_cpu (true or false)",
        "lmcache.toml:4: remote_serde: 'cachegen' is not supported: chunks are kept as they are, so that answers stay exact; write 'naive' or leave the key out",
        "lmcache.toml:7: pipelined_backend: retired by LMCache; writes are always behind the request; use write_behind_chunks for their bound",
    ]


def test_512_converts_to_what_loads(judge) -> None:
    text, notes = converted("lmcache-512-redis-blending.yaml")
    assert judge(text).values.chunk_size == 512
    assert notes == [
        "local_device: dropped: retired by LMCache; use local_cpu (true or false)",
        "remote_serde: dropped: 'cachegen' is not supported: chunks are kept as they are, so that answers stay exact; write 'naive' or leave the key out",
        "enable_blending: dropped: LMCache's own, nothing here takes its place",
        "pipelined_backend: dropped: retired by LMCache; writes are always behind the request; use write_behind_chunks for their bound",
    ]


def test_3057_a_key_nobody_reads_is_refused(problems: Problems) -> None:
    assert problems(as_written("mooncake-3057-unknown-key.yaml")) == [
        "lmcache.toml:6: enable_mooncake_nof_pool: unknown key"
    ]


def test_868_a_quoted_number_is_refused_in_a_file(problems: Problems) -> None:
    assert problems(as_written("mooncake-868-decoder-tcp.yaml")) == [
        "lmcache.toml:5: max_local_cpu_size: must be a number, got '8.0'; write it without quotes"
    ]


def test_868_a_quoted_number_is_fine_in_a_variable(judge) -> None:
    assert judge(None, {"LMCACHE_MAX_LOCAL_CPU_SIZE": "8.0"}).values.max_local_cpu_size == 8.0


def test_868_the_stores_plugin_validates_its_table(judge, problems: Problems) -> None:
    text, _ = converted("mooncake-868-decoder-tcp.yaml")
    assert judge(text).table("mooncakestore").protocol == "tcp"
    assert problems(text.replace("transfer_timeout = 10", "transfer_timeout = '10'")) == [
        "lmcache.toml:14: extra_config.mooncakestore.transfer_timeout: must be a whole number, got '10'; write it without quotes (table of plugin 'mooncake')"
    ]


def test_1810_loads_with_the_plugin_that_serves_it(judge) -> None:
    found = judge(converted("lmcache-1810-mooncake-rdma-ha.yaml")[0])
    assert found.values.local_cpu is False
    assert found.table("mooncakestore").transfer_timeout == 1


def test_1572_the_variable_wins_and_says_so(judge, problems: Problems) -> None:
    text, _ = converted("lmcache-1572-plugins-dotted-extra-config.yaml")
    found = problems(text, {"LMCACHE_CHUNK_SIZE": "512"})
    assert found == [
        "lmcache.toml:8: extra_config.frontend: no loaded plugin owns table 'frontend'; install the plugin that does, or remove it",
        "lmcache.toml:11: extra_config.log_external_backend: no loaded plugin owns table 'log_external_backend'; install the plugin that does, or remove it",
    ]
    rows = judge(text.partition("[extra_config")[0], {"LMCACHE_CHUNK_SIZE": "512"}).rows()
    assert [(row.value, row.source) for row in rows if row.key == "chunk_size"] == [(512, "env LMCACHE_CHUNK_SIZE")]


def test_1572_dotted_keys_become_tables() -> None:
    text, _ = converted("lmcache-1572-plugins-dotted-extra-config.yaml")
    assert text.partition("[extra_config")[2] == (
        ".frontend]\nport = 8080\n\n[extra_config.log_external_backend]\n"
        'module_path = "lmc_external_log_backend.lmc_external_log_backend"\nclass_name = "ExternalLogBackend"\n'
    )


def test_774_a_plugin_in_an_address_becomes_a_table_and_its_secret_stays_out_of_the_notes() -> None:
    text, notes = converted("lmcache-774-external-connector-url.yaml")
    assert "remote_url" not in text
    assert "[extra_config.example_kv_connector]" in text
    assert 'example_kv_secret = "---"' in text
    assert not any("---" in note for note in notes)


def test_1735_the_empty_table_and_its_lost_key_are_both_reported() -> None:
    _, notes = converted("lmcache-1735-p2p-lost-indent.yaml")
    assert notes[-2:] == [
        "lookup_backoff_time: dropped: LMCache reads it under extra_config (was its indent lost?), and nothing here takes its place",
        "extra_config: is empty; was the indent of the keys below it lost?",
    ]


def test_1735_the_loader_refuses_the_lost_key(problems: Problems) -> None:
    assert problems(as_written("lmcache-1735-p2p-lost-indent.yaml")) == [
        "lmcache.toml:8: lookup_backoff_time: unknown key here; it belongs under [extra_config]"
    ]


def test_559_quoted_false_never_means_true(judge, problems: Problems) -> None:
    found = problems(as_written("lmcache-559-quoted-bool.yaml"))
    assert found[0] == "lmcache.toml:2: local_cpu: must be true or false, got 'false'; write it without quotes"
    text, notes = converted("lmcache-559-quoted-bool.yaml")
    assert notes[0] == "local_cpu: rewritten: the text 'false' as false"
    assert judge(text).values.local_cpu is False


def test_559_the_missing_staging_size_is_told_before_anything_is_allocated(judge) -> None:
    assert judge(converted("lmcache-559-quoted-bool.yaml")[0]).warnings == (
        "max_local_cpu_size: is not set; stores load and save through 5 GiB of CPU memory, the default",
    )


def test_2556_a_remote_without_memory_to_load_through_is_refused(problems: Problems) -> None:
    text = converted("lmcache-2556-remote-without-cpu.yaml")[0].replace("lm://", "redis://")
    assert problems(text) == [
        "lmcache.toml:2: max_local_cpu_size: must be greater than 0, got 0: every store loads and saves through this memory, also with local_cpu = false"
    ]


def test_93_settings_outside_the_prefix_are_named_and_no_store_is_guessed(problems: Problems) -> None:
    assert problems(None, variables("lmcache-93-redis-sentinel.env")) == [
        "LMCACHE_REMOTE_URL: no loaded plugin serves redis-sentinel:// (known: file, mooncakestore, redis, rediss); the nearest known name is 'rediss'"
    ]


def test_93_the_variables_outside_the_prefix_are_in_the_warning(judge) -> None:
    environ = {**variables("lmcache-93-redis-sentinel.env"), "LMCACHE_REMOTE_URL": "redis://localhost:26379"}
    assert judge(None, environ).warnings == (
        "known to LMCache, not used here, ignored: REDIS_SERVICE_NAME, REDIS_TIMEOUT",
    )


def test_987_the_retired_variable_is_unknown(problems: Problems) -> None:
    assert problems(None, variables("lmcache-987-k8s-cpu-offload.env")) == [
        "LMCACHE_USE_EXPERIMENTAL: unknown variable; LMCache has retired it and nothing takes its place; remove it"
    ]


def test_987_the_shared_metrics_directory_is_a_warning(judge) -> None:
    environ = variables("lmcache-987-k8s-cpu-offload.env")
    del environ["LMCACHE_USE_EXPERIMENTAL"]
    found = judge(None, environ)
    assert found.warnings == (
        "PROMETHEUS_MULTIPROC_DIR: '/tmp' is shared with everything else on this machine; name an empty directory of its own",
    )
    assert (found.values.chunk_size, found.values.log_level) == (128, "DEBUG")


def test_4213_each_unknown_variable_is_listed_with_a_nearest_name(problems: Problems) -> None:
    assert problems(None, variables("lmcache-4213-mixed-modes.env")) == [
        "LMCACHE_CLIENT_MAX_MEM_USAGE: unknown variable; the nearest known name is LMCACHE_PIN_TIMEOUT_SEC",
        "LMCACHE_MEM_POOL_SIZE: unknown variable; the nearest known name is LMCACHE_MAX_LOCAL_CPU_SIZE",
        "LMCACHE_REMOTE_URL: no loaded plugin serves lm:// (known: file, mooncakestore, redis, rediss)",
        "LMCACHE_SERVER_TIMEOUT: unknown variable; the nearest known name is LMCACHE_SERVER_DRAIN_SECS",
    ]


def test_4213_what_lmcache_knows_is_a_warning(judge) -> None:
    environ = {"LMCACHE_LOOKUP_TIMEOUT_MS": "60000", "LMCACHE_USE_GDS": "False", "LMCACHE_PIN_CHECK_INTERVAL_SEC": "40"}
    assert judge(None, environ).warnings == (
        "known to LMCache, not used here, ignored: LMCACHE_LOOKUP_TIMEOUT_MS, LMCACHE_PIN_CHECK_INTERVAL_SEC, LMCACHE_USE_GDS",
    )


def test_1790_the_named_file_must_be_there(problems: Problems) -> None:
    assert problems(None, variables("lmcache-1790-file-and-env.env")) == [
        "LMCACHE_CONFIG_FILE: config file '/etc/lmcache/lmcache.yaml' does not exist; create it or correct the name"
    ]


def test_1790_size_without_path_and_the_misnamed_id_are_reported(problems: Problems) -> None:
    environ = variables("lmcache-1790-file-and-env.env")
    del environ["LMCACHE_CONFIG_FILE"]
    assert problems("chunk_size = 256", environ) == [
        "LMCACHE_INSTANCE_ID: unknown variable; the nearest known name is LMCACHE_LMCACHE_INSTANCE_ID",
        "LMCACHE_MAX_LOCAL_DISK_SIZE: needs local_disk, the directory to keep chunks in",
        "LMCACHE_REMOTE_URL: no loaded plugin serves lm:// (known: file, mooncakestore, redis, rediss)",
        "LMCACHE_USE_EXPERIMENTAL: unknown variable; LMCache has retired it and nothing takes its place; remove it",
    ]


def test_1790_every_key_shows_its_source(judge) -> None:
    environ = {
        "LMCACHE_LOCAL_CPU": "True",
        "LMCACHE_MAX_LOCAL_CPU_SIZE": "32",
        "LMCACHE_LMCACHE_INSTANCE_ID": "instance-a",
    }
    sources = {row.key: row.source for row in judge("chunk_size = 256", environ).rows()}
    assert sources["chunk_size"] == "lmcache.toml:1"
    assert sources["max_local_cpu_size"] == "env LMCACHE_MAX_LOCAL_CPU_SIZE"
    assert sources["lmcache_instance_id"] == "env LMCACHE_LMCACHE_INSTANCE_ID"
    assert sources["pin_timeout_sec"] == "default"
