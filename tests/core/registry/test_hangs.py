"""A plugin that never comes back costs its time, not the start."""

import importlib
import re
import threading
import time
from collections.abc import Iterator

import pytest

from lmcache_core.config.model import PluginsTable
from lmcache_core.contracts.metric import TelemetryContext
from lmcache_core.errors import PluginError
from lmcache_core.registry import PluginState, load_plugins
from lmcache_core.registry.load import LOAD_TIMEOUT_S
from lmcache_core.registry.watched import WatchedCall

CONTEXT = TelemetryContext(chunk_tokens=256, deployment_mode="single_process")
WAY_OUT = "mend what it waits for, put it into plugins.disabled, or raise plugins.load_timeout_secs"
PLACE = r"\(in wait_for_an_answer, acme_gate.py line 9\)"


@pytest.fixture
def hangs(install) -> Iterator[object]:
    """Install the plugins that hang; let them go at the end."""
    entries = {entry.name: entry for entry in install("hangs")}
    gate = importlib.import_module("acme_gate").GATE
    yield lambda *names: [entries[name] for name in names]
    gate.set()
    for thread in threading.enumerate():
        if isinstance(thread, WatchedCall):
            thread.join(10)


@pytest.fixture
def open_gate(hangs):
    def open_and_wait() -> None:
        importlib.import_module("acme_gate").GATE.set()
        for thread in threading.enumerate():
            if isinstance(thread, WatchedCall):
                thread.join(10)

    return open_and_wait


@pytest.mark.parametrize("name", ["hangs", "hangs_in_hook"])
def test_is_failed_with_reason_and_place(name: str, hangs) -> None:
    registry = load_plugins(entry_points=hangs(name), load_timeout_s=1.0)

    assert registry.plugins[0].state is PluginState.FAILED
    assert re.fullmatch(rf"still loading after 1 s {PLACE}; {WAY_OUT}", registry.failed()[name])


@pytest.mark.timing
def test_the_others_work(hangs, install) -> None:
    registry = load_plugins(entry_points=[*hangs("hangs"), *install("good")], load_timeout_s=0.2)

    assert [one.plugin for one in registry.health_checks()] == ["good"]
    assert set(registry.failed()) == {"hangs"}


def test_traceback_shows_the_plugins_line(hangs) -> None:
    registry = load_plugins(entry_points=hangs("hangs"), load_timeout_s=1.0)

    assert 'acme_hangs.py", line 7, in <module>\n    wait_for_an_answer()' in registry.plugins[0].traceback


def test_one_warning(hangs, caplog) -> None:
    load_plugins(entry_points=hangs("hangs"), load_timeout_s=0.2)

    (message,) = caplog.messages
    assert message.startswith("plugin 'hangs' (acme-hangs 1.0): still loading after 0.2 s (in ")


def test_a_required_one_stops_the_start(hangs) -> None:
    with pytest.raises(PluginError, match=r"^plugin 'hangs' \(acme-hangs 1.0\): still loading after 0.2 s "):
        load_plugins(entry_points=hangs("hangs"), required=["hangs"], load_timeout_s=0.2)


@pytest.mark.timing
def test_a_disabled_one_is_not_waited_for(hangs) -> None:
    started = time.monotonic()
    load_plugins(entry_points=hangs("hangs"), disabled=["hangs"], load_timeout_s=30)

    assert time.monotonic() - started < 15


def test_its_thread_does_not_keep_the_process(hangs) -> None:
    load_plugins(entry_points=hangs("hangs"), load_timeout_s=0.2)

    (thread,) = [one for one in threading.enumerate() if isinstance(one, WatchedCall)]
    assert (thread.daemon, thread.name) == (True, "lmcache-plugin-acme_hangs")


@pytest.mark.timing
def test_is_waited_for_once_in_a_process(hangs) -> None:
    load_plugins(entry_points=hangs("hangs"), load_timeout_s=0.2)

    started = time.monotonic()
    again = load_plugins(entry_points=hangs("hangs"), load_timeout_s=30)

    assert again.failed() == {"hangs": f"still loading since an earlier start in this process; {WAY_OUT}"}
    assert time.monotonic() - started < 15


def test_a_package_that_hangs_is_waited_for_once(hangs) -> None:
    registry = load_plugins(entry_points=hangs("stuck_one", "stuck_two"), load_timeout_s=0.2)

    assert registry.failed()["stuck_two"] == (
        "module 'acme_stuck' is still being imported for another plugin, which was given up"
    )


def test_says_so_when_it_comes_back_too_late(hangs, open_gate, caplog) -> None:
    registry = load_plugins(entry_points=hangs("hangs"), load_timeout_s=0.2)
    open_gate()

    assert caplog.messages[1:] == [
        f"plugin 'hangs' (acme-hangs 1.0): it has loaded after all, too late, and stays left out; {WAY_OUT}"
    ]
    assert set(registry.failed()) == {"hangs"}


def test_loads_at_the_next_start_once_it_has_come_back(hangs, open_gate) -> None:
    load_plugins(entry_points=hangs("hangs"), load_timeout_s=0.2)
    open_gate()

    assert load_plugins(entry_points=hangs("hangs")).failed() == {}


@pytest.mark.timing
def test_one_that_hangs_in_a_later_hook_is_left_out(hangs, install, caplog) -> None:
    registry = load_plugins(entry_points=[*hangs("hangs_in_specs"), *install("good")], load_timeout_s=0.2)

    assert [one.plugin for one in registry.metric_specs(CONTEXT)] == ["good"]
    reason = rf"hook lmcache_metric_specs is still running after 0.2 s {PLACE}, so it is left out"
    assert re.fullmatch(reason, registry.failed()["hangs_in_specs"])
    assert len(caplog.messages) == 1


def test_a_later_hook_that_still_hangs_is_not_waited_for_again(hangs, caplog) -> None:
    registry = load_plugins(entry_points=hangs("hangs_in_specs"), load_timeout_s=60)
    registry.limit_s = 0.2
    registry.metric_specs(CONTEXT)
    registry.limit_s = 3600

    assert registry.metric_specs(CONTEXT) == []
    assert caplog.messages[-1] == (
        "plugin 'hangs_in_specs' (acme-hangs 1.0): hook lmcache_metric_specs is still running since an earlier start "
        "in this process, so it is left out"
    )


def test_a_later_hook_that_comes_back_too_late_is_logged(hangs, open_gate, caplog) -> None:
    registry = load_plugins(entry_points=hangs("hangs_in_specs"), load_timeout_s=60)
    registry.limit_s = 0.2
    registry.metric_specs(CONTEXT)
    open_gate()

    (late,) = caplog.messages[1:]
    assert late == (
        "plugin 'hangs_in_specs' (acme-hangs 1.0): "
        "hook lmcache_metric_specs has ended after all, too late, and stays left out"
    )


def test_default_is_the_configurations() -> None:
    assert PluginsTable().load_timeout_secs == LOAD_TIMEOUT_S


def test_no_limit_is_too_long(install) -> None:
    assert load_plugins(entry_points=install("good"), load_timeout_s=1e300).failed() == {}
