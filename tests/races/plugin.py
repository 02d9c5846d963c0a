"""The pytest plugin that looks for races: ``make races``, or ``python -m pytest -p tests.races.plugin PATHS``.

Threads are held up for moments at places drawn from a seed, so that what is nearly always done in
time is late now and then. A test that fails has bet on the speed of a thread, or a reader has seen
what a writer had half done. It prints its seed; the same seed gives a test the same pauses, whatever
runs beside it, as long as its threads have the same names and begin in the same order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.races.pauses import Pauser, Plan

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("core/lmcache_core", "plugins/lmcache_plugins", "tests")
_MAIN_SHARE = 0.25  # of what other threads get: all of it is time that the test takes
_SEEDS = 1_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the seed, and how hard to look."""
    group = parser.getgroup("races", "threads are held up at random")
    group.addoption("--race-seed", type=int, default=None, help="repeat the pauses of a run; drawn if not given")
    group.addoption("--race-share", type=float, default=Plan.share, help="of all places, how many pause (%(default)s)")
    group.addoption("--race-longest", type=float, default=Plan.longest_s, help="seconds of one pause (%(default)s)")
    group.addoption("--race-main", action="store_true", help="hold up the main thread as well, more rarely")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed, in a worker of xdist's take the one of the process that began it."""
    option = config.option
    if option.race_seed is None:
        option.race_seed = getattr(config, "workerinput", {}).get("race_seed", random.randrange(_SEEDS))
    plan = Plan(
        seed=option.race_seed,
        share=option.race_share,
        longest_s=option.race_longest,
        main_share=option.race_share * _MAIN_SHARE if option.race_main else 0.0,
    )
    config.pluginmanager.register(Races(Pauser(plan, _ROOT, _FOLDERS)), "races")


class Races:
    """Holds threads up while tests run, and tells of a failed one where.

    Args:
        pauser: Holds them up.
    """

    def __init__(self, pauser: Pauser) -> None:
        self._pauser = pauser
        self._repeat = f"--race-seed {pauser.plan.seed}{' --race-main' if pauser.plan.main_share else ''}"

    def pytest_report_header(self) -> str:
        """Say how to repeat the run."""
        return f"races: {self._repeat}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the seed to a worker of xdist's."""
        node.workerinput["race_seed"] = self._pauser.plan.seed

    def pytest_sessionstart(self) -> None:
        """Begin before the first fixture starts a thread."""
        self._pauser.install()

    def pytest_sessionfinish(self) -> None:
        """Leave the end of the run alone."""
        self._pauser.remove()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Draw for the test, from before its fixtures are made until they are gone."""
        self._pauser.begin(item.nodeid)
        before, trace = sys.gettrace(), self._pauser.main_trace()
        if trace is not None:
            sys.settrace(trace)
        try:
            return (yield)
        finally:
            if trace is not None:
                sys.settrace(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a failure what was held up until then."""
        report = yield
        if report.failed:
            made = "\n".join(str(pause) for pause in self._pauser.made())
            report.sections.append((f"races: {self._repeat} {item.nodeid}", made or "no thread was held up"))
        return report
