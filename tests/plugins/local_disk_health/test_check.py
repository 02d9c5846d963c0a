import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.memory_store import Options, Rig

from lmcache_core import BackendUsage
from lmcache_core.storage.guard import GuardedTier
from lmcache_plugins.local_disk_health.check import LocalDiskHealthCheck
from lmcache_plugins.local_disk_health.settings import LocalDiskHealthSettings

GIB = 1 << 30
MakeCheck = Callable[..., LocalDiskHealthCheck]


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[GuardedTier]:
    rig = Rig()
    tier = rig.tiers[0]
    tier.url = f"disk://{tmp_path / 'kv'}"
    tier.options = Options(fallback_policy=("read_only", "bypass"))
    yield tier
    rig.close()


@pytest.fixture
def check(tier: GuardedTier) -> MakeCheck:
    return lambda **settings: LocalDiskHealthCheck(tier, LocalDiskHealthSettings(**settings))


@pytest.fixture
def file_system(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the system says of every file system; a full or read-only one is not to be had without rights."""
    says = SimpleNamespace(
        f_bavail=100 * GIB // 4096, f_frsize=4096, f_blocks=200 * GIB // 4096, f_files=10**6, f_favail=10**6, f_flag=0
    )
    monkeypatch.setattr(os, "statvfs", lambda _: says)
    return says


def test_a_real_file_system_is_asked(check: MakeCheck, tmp_path: Path) -> None:
    result = check(least_free_gib=0.0, least_free_inodes=0).check()
    found = os.statvfs(tmp_path)

    assert result.healthy
    assert result.details["folder"] == str(tmp_path)  # the store's own folder is not there yet
    assert result.details["total_bytes"] == found.f_blocks * found.f_frsize


def test_room_enough_is_fine(check: MakeCheck, file_system: Any) -> None:
    result = check().check()

    assert (result.healthy, result.degraded, result.reason) == (True, False, "")
    assert result.details["free_bytes"] == 100 * GIB


def test_little_room_is_a_reservation(check: MakeCheck, file_system: Any, tmp_path: Path) -> None:
    file_system.f_bavail = GIB // 2 // 4096
    result = check().check()

    assert (result.healthy, result.degraded) == (True, True)
    assert result.reason == f"0.50 GiB are free at {tmp_path / 'kv'}, less than least_free_gib (1)"


def test_few_inodes_are_a_reservation(check: MakeCheck, file_system: Any, tmp_path: Path) -> None:
    file_system.f_favail = 7

    assert check().check().reason == f"7 inodes are free at {tmp_path / 'kv'}, less than least_free_inodes (10000)"


def test_a_file_system_that_counts_no_inodes_has_enough(check: MakeCheck, file_system: Any) -> None:
    file_system.f_files = file_system.f_favail = 0

    assert not check().check().degraded


def test_a_read_only_file_system_fails_for_writes(check: MakeCheck, file_system: Any, tmp_path: Path) -> None:
    file_system.f_flag = os.ST_RDONLY
    result = check().check()

    assert (result.healthy, result.failing) == (False, {"writes"})
    assert result.reason == (f"RemoteBackend-0: {tmp_path} cannot be written; remount it, or mend its owner and mode")


def test_an_error_of_the_file_system_fails_for_both(
    check: MakeCheck, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", broken)
    result = check().check()

    assert (result.healthy, result.failing) == (False, {"reads", "writes"})
    assert result.reason == f"RemoteBackend-0: cannot ask the file system of {tmp_path}: input/output error"


def test_a_bound_that_the_disk_cannot_keep_is_a_notice(
    check: MakeCheck, file_system: Any, tier: GuardedTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = BackendUsage(bytes_used=50 * GIB, capacity_bytes=200 * GIB)
    monkeypatch.setattr(tier, "usage", lambda: usage)
    result = check().check()

    assert (result.healthy, result.degraded) == (True, False)
    assert result.reason == (
        f"the store may take 150.00 GiB more, and 100.00 GiB are free at {tmp_path / 'kv'}; lower max_local_disk_size"
    )


def test_it_speaks_for_its_store(check: MakeCheck) -> None:
    one = check()

    assert (one.name(), one.get_bypass_backend_name(), one.fallback_policy, one.policy_ladder_secs) == (
        "LocalDiskHealthCheck(RemoteBackend-0)",
        "RemoteBackend-0",
        ("read_only", "bypass"),
        30.0,
    )


def test_only_stores_made_of_files_have_one() -> None:
    urls = ["disk:///a", "redis://b", "file:///c"]
    tiers = [SimpleNamespace(url=url, name=url) for url in urls]
    made = LocalDiskHealthCheck.create(SimpleNamespace(tiers=tiers, settings=lambda _: None))  # type: ignore[arg-type]

    assert [one.name() for one in made] == ["LocalDiskHealthCheck(disk:///a)", "LocalDiskHealthCheck(file:///c)"]
