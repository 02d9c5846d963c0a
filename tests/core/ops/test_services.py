from collections.abc import Iterator

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, Watchtower
from tests.memory_store import Rig

from lmcache_core.contracts.report import BackendReport, BreakerSummary, HoldReport
from lmcache_core.ops.probes import Probes, Readiness
from lmcache_core.ops.services import Services

REMOTE = "RemoteBackend-0"


class Observed(SteeredCheck):
    enforce = False


@pytest.fixture
def tower() -> Iterator[MakeTower]:
    towers: list[Watchtower] = []

    def make(*checks: SteeredCheck, **how: object) -> Watchtower:
        towers.append(Watchtower(Rig(), list(checks), **how))
        return towers[-1]

    yield make
    for one in towers:
        one.monitor.stop()
        one.rig.close()


def serving(tower: Watchtower, readiness: Readiness = "started") -> dict[str, bool]:
    probes = Probes(tower.monitor, readiness)
    return Services(tower.monitor, probes, tower.storage.backend_names()).serving()


def backend(breaker: str = "closed", *holds: HoldReport) -> dict[str, object]:
    report = BackendReport(name=REMOTE, url="memory://0", breaker=BreakerSummary(state=breaker, since_s=0), holds=holds)
    return {"backends": lambda: (report,)}


def hold(*, reads: bool, writes: bool) -> HoldReport:
    return HoldReport(owner="operator:alice", reason="", reads=reads, writes=writes)


def test_when_all_is_well_all_serve(tower: MakeTower) -> None:
    assert serving(tower(SteeredCheck()).start()) == {
        "": True,
        "livez": True,
        "readyz": True,
        "startupz": True,
        "LocalCPUBackend": True,
        "RemoteBackend-0": True,
    }


def test_before_the_start_only_liveness_and_what_no_check_speaks_for_serve(tower: MakeTower) -> None:
    found = serving(tower(SteeredCheck(backend=REMOTE)))

    assert [name for name, serves in found.items() if serves] == ["livez", "LocalCPUBackend"]


def test_a_dead_store_under_recompute_takes_the_system_and_itself_down_but_no_probe(tower: MakeTower) -> None:
    found = serving(tower(SteeredCheck(run=lambda: False, backend=REMOTE)).start())

    assert [name for name, serves in found.items() if not serves] == ["", "RemoteBackend-0"]


def test_with_readiness_healthy_it_is_not_ready_either(tower: MakeTower) -> None:
    found = serving(tower(SteeredCheck(run=lambda: False, backend=REMOTE)).start(), "healthy")

    assert [name for name, serves in found.items() if not serves] == ["", "readyz", "RemoteBackend-0"]


def test_a_dead_store_under_local_cpu_takes_only_itself_down(tower: MakeTower) -> None:
    found = serving(tower(SteeredCheck(run=lambda: False, backend=REMOTE, policy="local_cpu")).start())

    assert [name for name, serves in found.items() if not serves] == ["RemoteBackend-0"]


@pytest.mark.parametrize(
    ("breaker", "serves"), [("closed", True), ("ramp", True), ("half_open", False), ("open", False)]
)
def test_a_backend_serves_as_its_breaker_admits(tower: MakeTower, breaker: str, serves: bool) -> None:
    assert serving(tower(**backend(breaker)).start())[REMOTE] is serves


@pytest.mark.parametrize(("reads", "writes"), [(True, True), (True, False), (False, True)])
def test_a_backend_serves_while_nobody_holds_its_reads_out(tower: MakeTower, reads: bool, writes: bool) -> None:
    found = serving(tower(**backend("closed", hold(reads=reads, writes=writes))).start())

    assert found[REMOTE] is not reads


def test_a_check_that_is_only_observed_takes_no_backend_down(tower: MakeTower) -> None:
    assert serving(tower(Observed(run=lambda: False, backend=REMOTE)).start())[REMOTE]
