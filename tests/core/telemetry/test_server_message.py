"""How a server is told of, without what would name anything."""

from __future__ import annotations

from lmcache_core.loading import load
from lmcache_core.telemetry.server_message import server_message


def test_stores_are_told_by_their_kind_alone() -> None:
    loaded = load(
        config_file=None,
        overrides={"remote_url": "redis://secret-host:6379", "local_disk": "/kv", "max_local_disk_size": 1.0},
        environ={},
    )

    message = server_message(loaded.configuration.values)

    assert (message.l2_adapter_types, message.l2_serde_types) == ("disk,redis", "naive,naive")
    assert "secret-host" not in repr(message)
