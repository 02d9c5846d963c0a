"""Checks that depend on each other."""

from tests.core.health.tower import Hang, MakeTower, SteeredCheck, state_of

from lmcache_core import HealthState
from lmcache_core.config.checks import CheckTable


def link(run=lambda: False, **how: object) -> SteeredCheck:
    return SteeredCheck("link", run, policy="journal", **how)


def store(name: str = "store", run=lambda: False, **how: object) -> SteeredCheck:
    return SteeredCheck(name, run, policy="journal", **{"depends_on": ("link",), **how})


def test_while_the_other_is_down_it_does_not_run(tower: MakeTower) -> None:
    below, above = link(), store()
    one = tower(below, above).start()
    for _ in range(5):
        below.await_run()
    report = one.monitor.report()

    assert above.runs == 0
    assert state_of(report, "store") is HealthState.UNKNOWN
    assert report.checks[1].reason == "not run while check 'link' is down"


def test_it_engages_nothing_itself(tower: MakeTower) -> None:
    one = tower(link(), store()).start()

    assert one.journal.journal == ["engage link"]


def test_what_it_had_engaged_is_released(tower: MakeTower) -> None:
    below = link(lambda: True)
    one = tower(below, store()).start()
    below.run = lambda: False
    one.await_report(lambda report: report.checks[1].reason.startswith("not run while"))

    assert one.journal.journal == ["engage store", "engage link", "release store"]


def test_it_runs_at_once_when_the_other_is_back(tower: MakeTower) -> None:
    below, above = link(), store(run=lambda: True, interval=3600.0)
    one = tower(below, above).start()
    below.run = lambda: True
    one.await_report(lambda report: state_of(report, "store") is HealthState.UP)

    assert above.runs == 1


def test_the_first_run_waits_for_the_others_verdict(tower: MakeTower, hang: Hang) -> None:
    above = store()
    one = tower(link(hang, timeout=30.0), above)
    one.monitor.start()
    assert hang.entered.wait(10)
    runs = above.runs
    hang.release.set()
    above.await_run()

    assert runs == 0
    assert one.monitor.wait_first_round(10)


def test_it_names_the_root_of_a_chain(tower: MakeTower) -> None:
    """The one in the middle is not down but not run, and holds the last one back all the same."""
    one = tower(link(), store("middle"), store("top", depends_on=("middle",))).start()
    reasons = {check.name: check.reason for check in one.monitor.report().checks}

    assert reasons["middle"] == reasons["top"] == "not run while check 'link' is down"


def test_a_group_stands_for_its_checks(tower: MakeTower) -> None:
    one = tower(link(group="network"), store(depends_on=("network",))).start()

    assert one.monitor.report().checks[1].reason == "not run while check 'link' is down"


def test_the_members_of_a_group_do_not_depend_on_each_other(tower: MakeTower) -> None:
    members = [SteeredCheck(name, lambda: False, group="g", depends_on=("g",)) for name in ("a", "b")]
    one = tower(*members).start()

    assert [check.state for check in one.monitor.report().checks] == [HealthState.DOWN] * 2


def test_a_star_stands_for_any_letters_and_brackets_for_themselves(tower: MakeTower) -> None:
    below = SteeredCheck("Remote(redis://[::1]:6379)", lambda: False, policy="journal")
    one = tower(below, store(depends_on=("Remote(redis://[::1]*",))).start()

    assert state_of(one.monitor.report(), "store") is HealthState.UNKNOWN


def test_what_fits_no_check_has_no_meaning(tower: MakeTower) -> None:
    """A plugin may name a check that this configuration does not have."""
    one = tower(store(run=lambda: True, depends_on=("elsewhere",))).start()

    assert state_of(one.monitor.report(), "store") is HealthState.UP


def test_an_observed_check_holds_nobody_back(tower: MakeTower) -> None:
    one = tower(link(enforce=False), store(run=lambda: True)).start()

    assert state_of(one.monitor.report(), "store") is HealthState.UP


def test_the_configuration_may_say_so(tower: MakeTower) -> None:
    table = CheckTable(match="store", depends_on=("link",))
    one = tower(link(), SteeredCheck("store", lambda: False), tables=[table]).start()

    assert one.monitor.report().checks[1].reason == "not run while check 'link' is down"
    assert one.monitor.is_healthy()
