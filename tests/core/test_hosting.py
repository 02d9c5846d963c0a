"""Stores and checks for a host that is no cache of this project."""

from __future__ import annotations

import time
from pathlib import Path

from lmcache_core import ChunkKey, KeyNamespace, load, open_checks, open_tiers

NAMESPACE = KeyNamespace(
    model_name="m", world_size=1, rank=0, dtype="bytes", layout="x", chunk_tokens=1, payload_bytes=100
)


class Nothing:
    """A host that can show its health keys and nothing else."""

    tiers = ()

    def __init__(self, options: object) -> None:
        self.health_options = options

    def settings(self, table: str) -> None:
        return None

    def threads(self) -> tuple[()]:
        return ()


def test_a_store_is_opened_behind_its_guard(tmp_path: Path) -> None:
    (tier,) = open_tiers(load(overrides={"remote_url": f"file://{tmp_path}"}, environ={}))
    key = ChunkKey(NAMESPACE, bytes(32))
    try:
        tier.store([(key, memoryview(bytes(NAMESPACE.frame_bytes)))], timeout_s=5)

        assert tier.count_present([key], deadline=time.monotonic() + 5) == 1
    finally:
        tier.close()


def test_checks_are_made_for_what_the_host_has() -> None:
    loaded = load(environ={})
    checks, left_out = open_checks(loaded, Nothing(loaded.configuration.values.extra_config))  # type: ignore[arg-type]

    assert {"ThreadHealthCheck(critical)", "ThreadHealthCheck(other)"} <= {check.name for check in checks}
    assert left_out["LocalCPUHealthCheck"] == "AttributeError: 'Nothing' object has no attribute 'local_usage'"
