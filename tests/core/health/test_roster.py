"""A plugin's check that cannot be used as it is costs that check; a wrong line of the user's stops the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, Watchtower, state_of

from lmcache_core import ConfigError, HealthCheck, HealthState, PluginError
from lmcache_core.config.checks import CheckTable
from lmcache_core.health.blame import Blame

ACME = "plugin 'acme' (acme-checks 2.0): "
LEFT_OUT = "; the check does not run"
RECOMPUTES = "; everything is recomputed while the check fails"
CLASH = "plugin 'theirs' (theirs 2.0): health check 'disk' is already declared by plugin 'ours'; rename or disable one"
TWO_OF_A_NAME = [("ours", "ours 1.0", SteeredCheck("disk")), ("theirs", "theirs 2.0", SteeredCheck("disk"))]


class Board:
    """Makes monitors that go without what a plugin cannot give, and keeps what they say."""

    def __init__(self, tower: MakeTower) -> None:
        self.said: list[str] = []
        self.causes: list[BaseException | None] = []
        self._tower = tower

    def make(self, *checks: HealthCheck, written: Mapping[str, set[str]] | None = None, **how: object) -> Watchtower:
        return self._tower(*checks, blame=Blame(written, self._note), **how)

    def _note(self, error: PluginError, effect: str) -> None:
        self.said.append(f"{error}; {effect}")
        self.causes.append(error.__cause__)


@pytest.fixture
def board(tower: MakeTower) -> Board:
    return Board(tower)


def names(one: Watchtower) -> list[str]:
    return [check.name for check in one.monitor.report().checks]


def broken() -> object:
    raise RuntimeError("no licence")


def exiting() -> object:
    raise SystemExit(3)


# -- checks that cannot be asked -------------------------------------------------------------------------------------


class Unnamed(SteeredCheck):
    """Its name is a third party's code."""

    def __init__(self, give: Callable[[], object]) -> None:
        super().__init__()
        self._give = give

    def name(self) -> str:
        return self._give()  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("give", "why"),
    [
        (broken, "RuntimeError: no licence"),
        (exiting, "SystemExit: 3"),
        (lambda: "", "ValueError: name() must give a name, got ''"),
        (lambda: None, "ValueError: name() must give a name, got None"),
        (lambda: 3, "ValueError: name() must give a name, got 3"),
    ],
)
def test_one_without_a_name_is_left_out(give: Callable[[], object], why: str, board: Board) -> None:
    one = board.make(Unnamed(give), SteeredCheck("whole"))

    assert names(one) == ["whole"]
    assert board.said == [f"{ACME}health check Unnamed cannot be used: {why}{LEFT_OUT}"]


@pytest.mark.parametrize(
    ("term", "value", "why"),
    [
        ("interval", -5, "ValueError: interval must be a finite number of seconds above 0, got -5"),
        ("interval", broken, "RuntimeError: no licence"),
        ("timeout", "soon", "ValueError: timeout must be a finite number of seconds above 0, got 'soon'"),
        ("policy", 7, "ValueError: fallback_policy must be a policy's name or a list of names, got 7"),
        ("policy", broken, "RuntimeError: no licence"),
        ("backend", 7, "ValueError: get_bypass_backend_name must give a name or None, got 7"),
        ("depends_on", exiting, "SystemExit: 3"),
    ],
)
def test_one_with_a_term_that_cannot_be_used_is_left_out(term: str, value: object, why: str, board: Board) -> None:
    one = board.make(SteeredCheck("odd", **{term: value}), SteeredCheck("whole"))

    assert names(one) == ["whole"]
    assert board.said == [f"{ACME}health check SteeredCheck cannot be used: {why}{LEFT_OUT}"]


def test_what_it_raised_is_the_cause(board: Board) -> None:
    board.make(Unnamed(broken))

    assert [repr(cause) for cause in board.causes] == ["RuntimeError('no licence')"]


def test_several_with_one_fault_are_named_once(board: Board) -> None:
    board.make(Unnamed(broken), Unnamed(broken))

    assert len(board.said) == 1


def test_something_that_is_no_check_is_left_out(board: Board) -> None:
    one = board.make(object(), SteeredCheck("whole"))  # type: ignore[arg-type]

    assert names(one) == ["whole"]
    assert board.said == [
        f"{ACME}health check object cannot be used: AttributeError: 'object' object has no attribute 'name'{LEFT_OUT}"
    ]


def test_where_nobody_goes_without_it_is_refused(tower: MakeTower) -> None:
    with pytest.raises(PluginError) as caught:
        tower(SteeredCheck(interval=-5))

    assert str(caught.value) == (
        f"{ACME}health check SteeredCheck cannot be used: "
        "ValueError: interval must be a finite number of seconds above 0, got -5"
    )


# -- names -----------------------------------------------------------------------------------------------------------


def test_of_two_with_one_name_the_first_counts(board: Board) -> None:
    one = board.make(brought=TWO_OF_A_NAME)

    assert [(check.name, check.plugin) for check in one.monitor.report().checks] == [("disk", "ours")]
    assert board.said == [CLASH + LEFT_OUT]


def test_a_name_that_the_user_gave_and_that_is_taken_is_refused(board: Board) -> None:
    with pytest.raises(ConfigError) as caught:
        board.make(brought=TWO_OF_A_NAME, written={"theirs": {"disk"}})

    assert (caught.value.problems, board.said) == ((CLASH,), [])


# -- policies and backends -------------------------------------------------------------------------------------------

UNKNOWN = "fallback policy 'local-cpu' is not known; did you mean 'local_cpu'"
NOTHING = (
    "fallback policy 'local_cpu' has no backend to leave out for check 'odd'; "
    "use 'recompute', or name one in get_bypass_backend_name"
)
FAULTS = {
    UNKNOWN: {"policy": "local-cpu"},
    NOTHING: {"policy": "local_cpu"},
    "backend 'RemoteBackend-O' is not there; did you mean 'RemoteBackend-0'": {
        "policy": "local_cpu",
        "backend": "RemoteBackend-O",
    },
    "backend 'LocalCPUBackend' is tier 0, which cannot be left out; use policy 'recompute'": {
        "policy": "local_cpu",
        "backend": "LocalCPUBackend",
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_its_policy_cannot_answer_for_runs_all_the_same(fault: str, board: Board) -> None:
    one = board.make(SteeredCheck("odd", **FAULTS[fault])).start()

    assert one.monitor.is_healthy()
    assert board.said == [f"{ACME}health check 'odd': {fault}{RECOMPUTES}"]


@pytest.mark.parametrize("fault", FAULTS)
def test_everything_is_recomputed_while_it_fails(fault: str, board: Board) -> None:
    """A policy that can do nothing must not look like protection: in a peer, it is a warning and the gate stays open."""
    check = SteeredCheck("odd", run=lambda: False, **FAULTS[fault])
    one = board.make(check).start()
    report = one.monitor.report()

    assert (report.healthy, state_of(report, "odd")) == (False, HealthState.DOWN)
    assert fault in report.reason
    check.run = lambda: True
    one.await_report(lambda report: report.healthy)


def test_a_ladder_goes_on_to_the_policy_that_can(board: Board) -> None:
    ladder = ("local_cpu", "journal")
    check = SteeredCheck("odd", run=lambda: False, policy=ladder, policy_ladder_secs=0.05, fast_interval=0.01)
    one = board.make(check)
    one.start().await_report(lambda report: report.healthy)

    assert one.journal.journal == ["engage odd"]
    assert board.said == [f"{ACME}health check 'odd': {NOTHING}{RECOMPUTES}"]


def test_what_the_configuration_says_of_checks_is_refused_all_at_once(board: Board) -> None:
    tables = [CheckTable(match="*", fallback_policy="local_cpu")]
    with pytest.raises(ConfigError) as caught:
        board.make(SteeredCheck("odd"), SteeredCheck("even"), tables=tables)

    assert caught.value.problems == (
        f"{ACME}health check 'even': {NOTHING.replace('odd', 'even')}",
        f"{ACME}health check 'odd': {NOTHING}",
    )


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"policy": "local-cpu"}, "local-cpu"),
        ({"policy": "local_cpu", "backend": "RemoteBackend-O"}, "RemoteBackend-O"),
        ({"policy": "local_cpu"}, "odd"),
    ],
)
def test_what_stands_in_the_plugins_own_table_is_refused(terms: dict[str, str], text: str, board: Board) -> None:
    with pytest.raises(ConfigError, match=r"^plugin 'acme' \(acme-checks 2.0\): health check 'odd': "):
        board.make(SteeredCheck("odd", **terms), written={"acme": {text}})

    assert board.said == []


def test_what_stands_in_another_plugins_table_is_not_its_fault(board: Board) -> None:
    board.make(SteeredCheck("odd", policy="local-cpu"), written={"other": {"local-cpu"}})

    assert board.said == [f"{ACME}health check 'odd': {UNKNOWN}{RECOMPUTES}"]


# -- dependencies ----------------------------------------------------------------------------------------------------


def test_of_a_circle_the_last_declared_is_left_out(board: Board) -> None:
    circle = [SteeredCheck("b", depends_on=("c",)), SteeredCheck("c", depends_on=("a",))]
    one = board.make(*circle, SteeredCheck("a", depends_on=("b",)), SteeredCheck("d", depends_on=("a", "c")))

    assert names(one) == ["b", "c", "d"]
    assert board.said == [
        f"{ACME}health check 'a' depends on itself: 'a' -> 'b' -> 'c' -> 'a'; break it in depends_on{LEFT_OUT}"
    ]


def test_those_that_are_left_hold_each_other_back_as_they_say(board: Board) -> None:
    """Nobody waits for a check that does not run."""
    first = SteeredCheck("a", run=lambda: False, enforce=True)
    circle = [first, SteeredCheck("b", depends_on=("a", "c")), SteeredCheck("c", depends_on=("b",))]
    one = board.make(*circle).start()

    assert [check.reason for check in one.monitor.report().checks][1] == "not run while check 'a' is down"


def test_two_circles_cost_two_checks(board: Board) -> None:
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    one = board.make(*(SteeredCheck(name, depends_on=(other,)) for name, other in pairs))

    assert names(one) == ["a", "c"]


def test_a_circle_that_the_configuration_closes_is_refused(board: Board) -> None:
    tables = [CheckTable(match="a", depends_on=("b",))]
    with pytest.raises(ConfigError) as caught:
        board.make(SteeredCheck("a"), SteeredCheck("b", depends_on=("a",)), tables=tables)

    assert str(caught.value) == (
        "health checks depend on each other in a circle: 'b' -> 'a' -> 'b'; break it in depends_on"
    )


def test_a_group_that_the_configuration_gives_may_close_it_too(board: Board) -> None:
    tables = [CheckTable(match="a", group="net")]
    with pytest.raises(ConfigError, match="in a circle: 'b' -> 'a' -> 'b'"):
        board.make(SteeredCheck("a", depends_on=("b",)), SteeredCheck("b", depends_on=("net",)), tables=tables)
