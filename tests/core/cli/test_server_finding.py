"""What the doctor says of the server that a configuration counts on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.core.cli.server_status import ScriptedServer, status_document, telling

from lmcache_core.cli.finding import Finding, Grade
from lmcache_core.cli.server_finding import examine_server
from lmcache_core.config.model import CoreConfig


def found(address: str, mode: str = "server") -> list[Finding]:
    return list(examine_server(CoreConfig.model_validate({"mode": mode, "server_address": address})))


def found_with(folder: Path, document: dict[str, Any]) -> list[Finding]:
    with ScriptedServer(folder, telling(document)) as server:
        return [
            Finding(one.grade, one.subject, one.text.replace(server.address, "ADDRESS"))
            for one in found(server.address)
        ]


def test_a_server_that_is_well(tmp_path: Path) -> None:
    assert found_with(tmp_path, status_document()) == [
        Finding(Grade.OK, "server", "ADDRESS, version 0.1.0, pid 4711, is up")
    ]


def test_a_server_that_is_not_well(tmp_path: Path) -> None:
    document = {**status_document(), "health": {"healthy": False, "state": "down", "reason": "no store"}}

    assert found_with(tmp_path, document) == [
        Finding(Grade.WARN, "server", "ADDRESS, version 0.1.0, pid 4711, is down: no store")
    ]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    assert found(f"ipc://{tmp_path}/s") == [
        Finding(
            Grade.WARN,
            "server",
            f"no cache server answers at ipc://{tmp_path}/s: there is no such socket; start one with: lmcachectl serve, or name its address with --address; without it everything is recomputed",
        )
    ]


def test_without_the_mode_nobody_is_asked(tmp_path: Path) -> None:
    assert found(f"ipc://{tmp_path}/s", "in_process") == []
