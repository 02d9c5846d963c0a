from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.memory_store import Gate, Options, refuse

from lmcache_core import CheckResult, LoadResult
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.tier_setup import TierSetup
from lmcache_plugins.file.backend import FileBackend
from lmcache_plugins.remote_health.probe import RoundTripProbe

MakeBench = Callable[..., Any]


def test_nothing_is_left_behind(bench: MakeBench) -> None:
    one = bench()
    result = RoundTripProbe(one.tier).run(5.0)

    assert result == CheckResult(healthy=True)
    assert one.store.frames == {}


def test_the_payload_is_random_bytes_not_uninitialised_memory(bench: MakeBench) -> None:
    one = bench()
    seen: list[bytes] = []

    def spy(call: str) -> None:
        if call == "load":
            seen.extend(one.store.frames.values())

    one.store.fault = spy
    RoundTripProbe(one.tier).run(5.0)
    RoundTripProbe(one.tier).run(5.0)

    assert [len(payload) for payload in seen] == [4096, 4096]
    assert seen[0] != seen[1]


def test_each_instance_has_a_key_of_its_own(bench: MakeBench) -> None:
    one = bench()
    keys = {str(RoundTripProbe(one.tier)._key) for _ in range(10)}

    assert len(keys) == 10
    assert all(key.startswith("lmcache-probe@1@0@bytes@1@") for key in keys)


def test_a_failed_probe_deletes_what_it_stored(bench: MakeBench) -> None:
    one = bench()
    one.store.fault = refuse("load")
    RoundTripProbe(one.tier).run(5.0)

    assert one.store.frames == {}


def test_a_leftover_is_deleted_by_the_next_probe_before_it_stores(bench: MakeBench) -> None:
    one = bench()
    probe = RoundTripProbe(one.tier)
    one.store.fault = refuse("load", "delete")
    probe.run(5.0)
    left = len(one.store.frames)
    calls: list[str] = []
    one.store.fault = calls.append
    result = probe.run(5.0)

    assert left == 1
    assert result.healthy
    assert calls == ["delete", "store", "load", "delete"]
    assert one.store.frames == {}


def test_at_most_one_value_is_ever_left_behind(bench: MakeBench) -> None:
    one = bench()
    probe = RoundTripProbe(one.tier)
    one.store.fault = refuse("load", "delete")
    for _ in range(5):
        probe.run(5.0)

    assert len(one.store.frames) == 1


def test_a_store_that_forgets_at_once_is_not_healthy(bench: MakeBench) -> None:
    one = bench()
    one.store.fault = lambda call: one.store.frames.clear() if call == "load" else None

    assert RoundTripProbe(one.tier).run(5.0) == CheckResult(
        healthy=False, reason="RemoteBackend-0 (memory://0): gives a miss for what it has just stored"
    )


def test_a_store_that_changes_a_byte_is_not_healthy(bench: MakeBench) -> None:
    one = bench()

    def flip(call: str) -> None:
        if call == "load":
            ((digest, payload),) = one.store.frames.items()
            one.store.frames[digest] = bytes([payload[0] ^ 1]) + payload[1:]

    one.store.fault = flip

    assert RoundTripProbe(one.tier).run(5.0).reason == (
        "RemoteBackend-0 (memory://0): gives back other bytes than it was handed"
    )


def test_a_corrupt_answer_is_not_healthy(bench: MakeBench) -> None:
    one = bench()
    probe = RoundTripProbe(one.tier)
    one.store.results[probe._key.digest] = LoadResult.CORRUPT

    assert not probe.run(5.0).healthy


def test_a_key_that_could_not_be_read_is_not_healthy(bench: MakeBench) -> None:
    one = bench()
    probe = RoundTripProbe(one.tier)
    one.store.results[probe._key.digest] = LoadResult.FAILED

    assert probe.run(5.0).reason == "RemoteBackend-0 (memory://0): could not read one value"


def test_a_store_that_hangs_is_left_at_the_timeout(bench: MakeBench) -> None:
    one = bench()
    one.store.fault = Gate("store")

    assert RoundTripProbe(one.tier).run(0.05).reason == (
        "RemoteBackend-0 (memory://0): store gave no answer before its deadline"
    )


def test_a_file_store_keeps_no_file_and_one_empty_folder(tmp_path: Path) -> None:
    backend = FileBackend(str(tmp_path / "kv"), name="RemoteBackend")
    setup = TierSetup(
        name="RemoteBackend", url="file:///kv", kind="file", options=Options(), connections=1, timeout_s=5.0
    )
    metrics = CacheMetrics()
    journal = Journal(EventBus(metrics))
    tier = GuardedTier(backend, setup, metrics, journal=journal, on_failure=lambda: None)
    verdicts = [RoundTripProbe(tier).run(5.0).healthy for _ in range(5)]
    tier.close()
    probes = list((tmp_path / "kv").glob("lmcache-probe*/**/*"))

    assert verdicts == [True] * 5
    assert [path for path in probes if path.is_file()] == []
    assert len(probes) == 1


@pytest.mark.parametrize(
    ("refused", "failing"),
    [
        (["store", "delete"], {"writes"}),
        (["store"], {"writes"}),
        (["load"], {"reads"}),
        (["load", "delete"], {"reads", "writes"}),
        (["store", "load"], {"reads", "writes"}),
        (["delete"], {"reads", "writes"}),
    ],
)
def test_it_says_which_side_fails(bench: MakeBench, refused: list[str], failing: set[str]) -> None:
    one = bench()
    one.store.fault = refuse(*refused)
    result = RoundTripProbe(one.tier).run(5.0)

    assert (result.healthy, result.failing) == (False, failing)


def test_a_replica_that_lets_nothing_be_deleted_still_reads(bench: MakeBench) -> None:
    one = bench()
    probe = RoundTripProbe(one.tier)
    one.store.fault = refuse("store", "delete")
    probe.run(5.0)

    assert probe.run(5.0).failing == {"writes"}


def test_after_a_hang_it_asks_for_no_more(bench: MakeBench) -> None:
    one = bench()
    calls: list[str] = []
    gate = Gate("store")

    def fault(call: str) -> None:
        calls.append(call)
        gate(call)

    one.store.fault = fault
    result = RoundTripProbe(one.tier).run(0.2)
    assert gate.entered.wait(10)  # the call that nobody waits for any more begins all the same
    gate.open()

    assert (calls, result.failing) == (["store"], {"reads", "writes"})
