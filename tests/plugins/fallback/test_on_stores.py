"""Each policy under a whole cache on a real folder and a real Valkey, with operators at work meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.plugins.fallback.stores import Folder, Store, Valkey

from lmcache_core import CacheManager, CheckReport, ConfigError, HealthState, KVLayout

pytestmark = pytest.mark.timing  # deadlines of a fraction of a second, which a busy machine misses too

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS, OTHERS = list(range(16)), list(range(100, 116))
NAME = "RemoteBackend"
OPERATOR = "operator:alice"

MakeCache = Callable[..., CacheManager]


@pytest.fixture(params=["file", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    one: Store = Folder(tmp_path) if request.param == "file" else Valkey(request.getfixturevalue("redis_server"))
    yield one
    one.mend()


@pytest.fixture
def cache(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeCache]:
    monkeypatch.chdir(tmp_path)
    managers: list[CacheManager] = []

    def make(policy: object, url: str = store.url, **overrides: object) -> CacheManager:
        health = {"ping_interval": 0.2, "ping_timeout": 0.15, "fallback_policy": policy, "policy_ladder_secs": 0.6}
        one = CacheManager.from_config(
            overrides={
                "chunk_size": 4,
                "max_local_cpu_size": 0.001,
                "blocking_timeout_secs": 1.0,
                "remote_url": url,
                "extra_config": health,
                **overrides,
            },
            environ={},
            layout=LAYOUT,
            model_name="m",
        )
        managers.append(one)
        one.start()
        return one

    yield make
    for one in managers:
        one.stop()


def some_kv() -> torch.Tensor:
    return torch.arange(2 * 2 * 16 * 8, dtype=torch.float32).reshape(LAYOUT.kv_shape(16))


def of_store(one: CacheManager) -> CheckReport:
    return next(check for check in one.health.report().checks if check.plugin == "remote_health")


def await_check(one: CacheManager, wanted: Callable[[CheckReport], bool]) -> None:
    until = time.monotonic() + 20.0
    while not wanted(of_store(one)):
        assert time.monotonic() < until, one.health.report()
        time.sleep(0.01)


def engaged(policy: str) -> Callable[[CheckReport], bool]:
    return lambda check: check.engaged and check.policy == policy


def recovered(check: CheckReport) -> bool:
    return check.state is HealthState.UP and not check.engaged


def keep(one: CacheManager, tokens: list[int]) -> None:
    one.engine.store(tokens, some_kv())
    assert one.storage.flush(10.0)


def holders(one: CacheManager) -> dict[str, tuple[bool, bool]]:
    return {owner: (hold.reads, hold.writes) for owner, hold in one.storage.holds(NAME).items()}


def test_read_only_reads_what_is_there_and_writes_nothing(cache: MakeCache, store: Store) -> None:
    one = cache("read_only", local_cpu=False)
    keep(one, TOKENS)
    store.break_writes()
    await_check(one, engaged("read_only"))
    healthy = one.is_healthy()
    found = one.engine.lookup(TOKENS)
    one.engine.store(OTHERS, some_kv())
    one.storage.flush(10.0)
    store.mend()
    await_check(one, recovered)

    assert (healthy, found) == (True, 16)
    assert one.engine.lookup(OTHERS) == 0
    assert holders(one) == {}


def test_bypass_leaves_the_store_out_and_the_hot_cache_alone(cache: MakeCache, store: Store) -> None:
    one = cache("bypass")
    keep(one, TOKENS)
    store.take_away()
    await_check(one, engaged("bypass"))
    found = one.engine.lookup(TOKENS)
    hold = holders(one)
    store.mend()
    await_check(one, recovered)

    assert found == 16  # from CPU memory
    assert list(hold.values()) == [(True, True)]
    assert (holders(one), one.storage.local.use_hot) == ({}, True)


def test_bypass_of_the_last_tier_says_so(cache: MakeCache, store: Store) -> None:
    one = cache("bypass", local_cpu=False)
    store.take_away()
    await_check(one, engaged("bypass"))
    report = one.health.report()

    assert (report.healthy, report.state) == (True, HealthState.DEGRADED)
    assert report.reason.endswith(
        "no tier is left to read from: CPU memory keeps nothing (local_cpu = false) and every store is left out"
    )


@pytest.mark.parametrize("policy", ["bypass", "local_cpu"])
def test_what_operators_changed_meanwhile_stays(cache: MakeCache, store: Store, policy: str) -> None:
    one = cache(policy, local_cpu=False)
    one.storage.set_backend_bypass(NAME, True, owner="operator:before", writes=False)
    store.take_away()
    await_check(one, engaged(policy))
    one.storage.set_backend_bypass(NAME, True, owner=OPERATOR, reason="repair", writes=False)
    one.storage.set_backend_bypass(NAME, False, owner="operator:before")
    one.storage.local.set_use_hot(True)
    keep(one, TOKENS)
    store.mend()
    await_check(one, recovered)

    assert holders(one) == {OPERATOR: (True, False)}
    assert (one.storage.local.use_hot, one.engine.lookup(TOKENS)) == (True, 16)


def test_an_operators_bypass_that_came_and_went_leaves_no_trace(cache: MakeCache, store: Store) -> None:
    one = cache("local_cpu", local_cpu=False)
    store.take_away()
    await_check(one, engaged("local_cpu"))
    keep(one, TOKENS)
    one.storage.set_backend_bypass(NAME, True, owner=OPERATOR)
    await_check(one, lambda check: check.state is HealthState.MAINTENANCE)
    between = one.engine.lookup(TOKENS)
    one.storage.set_backend_bypass(NAME, False, owner=OPERATOR)
    await_check(one, lambda check: check.state is HealthState.DOWN)
    store.mend()
    await_check(one, recovered)

    assert between == 16  # what CPU memory took over is not lost to a maintenance
    assert (holders(one), one.storage.local.use_hot, one.storage.local.chunks) == ({}, False, 0)


def test_a_ladder_goes_on_when_the_failure_lasts(cache: MakeCache, store: Store) -> None:
    one = cache(["read_only", "local_cpu"], local_cpu=False)
    store.break_writes()
    await_check(one, engaged("read_only"))
    first = holders(one)
    await_check(one, engaged("local_cpu"))
    second = holders(one)
    store.mend()
    await_check(one, recovered)

    assert list(first.values()) == [(False, True)]
    assert list(second.values()) == [(True, True)]
    assert (holders(one), one.storage.local.use_hot) == ({}, False)


def test_a_ladder_goes_on_at_once_when_reads_fail_too(cache: MakeCache, store: Store) -> None:
    one = cache(["read_only", "local_cpu"])
    started_s = time.monotonic()
    store.take_away()
    policies: list[str] = []
    while "local_cpu" not in policies:
        check = of_store(one)
        policies += [check.policy] if check.engaged else []
        assert time.monotonic() - started_s < 20.0, one.health.report()

    assert set(policies) == {"local_cpu"}
    assert of_store(one).ladder == ("read_only", "local_cpu")


def test_read_only_alone_says_when_it_does_not_help(cache: MakeCache, store: Store) -> None:
    one = cache("read_only")
    store.take_away()
    await_check(one, engaged("read_only"))

    assert of_store(one).reason.endswith(
        "; reads and writes fail, which policy 'read_only' does not help with; add another one to fallback_policy"
    )
    assert one.is_healthy()


@pytest.mark.parametrize("store", ["redis"], indirect=True)  # root may read every folder that it can write
def test_write_only_goes_on_writing_what_it_may_not_read(cache: MakeCache, store: Valkey) -> None:
    one = cache("write_only", local_cpu=False)
    store.break_reads()
    await_check(one, engaged("write_only"))
    keep(one, TOKENS)
    during = (one.engine.lookup(TOKENS), list(holders(one).values()))
    store.mend()
    await_check(one, recovered)

    assert during == (0, [(True, False)])
    assert one.engine.lookup(TOKENS) == 16


def test_local_cpu_in_a_ladder_needs_cpu_memory(cache: MakeCache, store: Store) -> None:
    with pytest.raises(ConfigError) as caught:
        cache(["read_only", "local_cpu"], max_local_cpu_size=0.0)

    assert "command line: extra_config.fallback_policy: 'local_cpu' needs max_local_cpu_size greater than 0" in str(
        caught.value
    )
