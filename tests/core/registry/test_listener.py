"""Plugins are told of changes of health; one that raises or hangs harms no other, and nobody waits for it."""

import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest
from tests.engine_calls import until
from tests.stalled_plugins import LIMIT_S, PATIENCE_S, PLACE, StalledPlugins

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.report import HealthReport
from lmcache_core.registry import PluginRegistry, load_plugins

HOOK = "lmcache_health_changed"
WHO = "plugin 'stalls_when_told' (acme-stalls 1.0): "


class Counted:
    """Names of the plugins that were counted."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, name: str) -> None:
        with self._changed:
            self.names.append(name)
            self._changed.notify_all()

    def wait_for(self, times: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.names) >= times, PATIENCE_S), self.names


def report(number: int) -> HealthReport:
    return HealthReport(healthy=True, state=HealthState.UP, reason=str(number), since_s=0.0)


@pytest.fixture
def told(install: Callable[..., object]) -> PluginRegistry:
    """One plugin that listens well and three that do not."""
    return load_plugins(entry_points=install("late", "good"))  # type: ignore[arg-type]


def test_a_change_reaches_every_plugin_past_those_that_raise(told: PluginRegistry) -> None:
    details: dict[str, bool] = {}
    listeners = told.health_listeners(Counted())
    listeners.tell(report=type("Report", (), {"details": details})())

    assert listeners.settle(PATIENCE_S)
    assert details == {"good": True}


def test_those_that_raise_are_counted_by_name(told: PluginRegistry) -> None:
    counted = Counted()
    listeners = told.health_listeners(counted)
    listeners.tell(report=type("Report", (), {"details": {}})())

    assert listeners.settle(PATIENCE_S)
    assert sorted(counted.names) == ["late_coroutine", "late_exit", "late_told"]


def test_one_that_raises_is_logged_with_traceback(
    install: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    registry = load_plugins(entry_points=install("late", only=["late_told", "late_coroutine"]))  # type: ignore[arg-type]
    listeners = registry.health_listeners(Counted())
    listeners.tell(report=report(1))

    assert listeners.settle(PATIENCE_S)
    assert all(entry.exc_info is not None for entry in caplog.records)
    assert sorted(caplog.messages) == [
        f"plugin 'late_coroutine' (acme-late 1.0): hook {HOOK} returned a coroutine",
        f"plugin 'late_told' (acme-late 1.0): hook {HOOK} raised RuntimeError: no network",
    ]


def test_changes_come_one_after_the_other_in_order(stalls: StalledPlugins) -> None:
    stalls.let_go()
    listeners = stalls.load("stalls_when_told", limit_s=60).registry.health_listeners(Counted())
    for number in range(50):
        listeners.tell(report=report(number))

    assert listeners.settle(PATIENCE_S)
    assert [one.reason for one in stalls.module.TOLD] == [str(number) for number in range(50)]


def test_one_that_hangs_is_logged_once_with_its_place(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    listeners = stalls.load("stalls_when_told").registry.health_listeners(counted)
    for number in range(5):
        listeners.tell(report=report(number))
    counted.wait_for(4)

    (message,) = caplog.messages
    reason = rf"hook {HOOK} is still running after {LIMIT_S:g} s {PLACE}; it is told nothing more until it returns"
    assert re.fullmatch(re.escape(WHO) + reason, message)


def test_one_that_hangs_is_skipped_and_each_turn_counted(stalls: StalledPlugins) -> None:
    counted = Counted()
    listeners = stalls.load("stalls_when_told").registry.health_listeners(counted)
    listeners.tell(report=report(0))
    counted.wait_for(1)  # it hangs
    for number in range(1, 5):
        listeners.tell(report=report(number))

    assert counted.names == ["stalls_when_told"] * 4  # the hang, and 1 to 3: the newest waits
    assert [one.reason for one in stalls.module.TOLD] == ["0"]


def test_the_newest_change_is_told_when_it_comes_back(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    listeners = stalls.load("stalls_when_told").registry.health_listeners(counted)
    listeners.tell(report=report(0))
    counted.wait_for(1)
    for number in range(1, 5):
        listeners.tell(report=report(number))
    (listener,) = listeners._listeners
    listener._limit_s = 60  # on a slow machine, the next calls may be slow too
    stalls.let_go()
    listeners.tell(report=report(5))

    assert listeners.settle(PATIENCE_S)
    assert [one.reason for one in stalls.module.TOLD] == ["0", "4", "5"]
    assert caplog.messages[1:] == [f"{WHO}hook {HOOK} has returned after all, and is told of changes again"]


def test_the_others_are_told_while_one_hangs(stalls: StalledPlugins, install: Callable[..., object]) -> None:
    entries = install("good", "stalls", only=["good", "stalls_when_told"])
    listeners = load_plugins(entry_points=entries, load_timeout_s=60).health_listeners(Counted())  # type: ignore[arg-type]
    for _ in range(3):
        details: dict[str, bool] = {}
        listeners.tell(report=type("Report", (), {"details": details})())
        assert until(lambda told=details: bool(told))
        assert not listeners.settle(0.0)

    assert until(lambda: len(stalls.module.TOLD) == 1)


@pytest.mark.timing
def test_the_end_does_not_wait_for_one_that_hangs(stalls: StalledPlugins) -> None:
    counted = Counted()
    listeners = stalls.load("stalls_when_told").registry.health_listeners(counted)
    listeners.tell(report=report(0))
    counted.wait_for(1)

    assert not listeners.settle(3600)


def refuse_one_thread(patch: pytest.MonkeyPatch, name: str) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", refuse)


def test_one_whose_thread_cannot_start_keeps_no_other_from_being_told(
    told: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    details: dict[str, bool] = {}
    counted = Counted()
    listeners = told.health_listeners(counted)
    refuse_one_thread(monkeypatch, "lmcache-tell-good")  # the first of them; each of the others raises
    listeners.tell(report=type("Report", (), {"details": details})())

    assert listeners.settle(PATIENCE_S)
    assert (sorted(counted.names), details) == (["good", "late_coroutine", "late_exit", "late_told"], {})


def test_it_is_counted_logged_and_told_at_the_next_change(
    stalls: StalledPlugins, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls.let_go()
    counted = Counted()
    listeners = stalls.load("stalls_when_told", limit_s=60).registry.health_listeners(counted)
    with monkeypatch.context() as patch:
        refuse_one_thread(patch, "lmcache-tell-stalls_when_told")
        listeners.tell(report=report(0))
    assert (counted.names, stalls.module.TOLD) == (["stalls_when_told"], [])
    listeners.tell(report=report(1))

    assert listeners.settle(PATIENCE_S)
    assert [one.reason for one in stalls.module.TOLD] == ["0", "1"]
    no_thread = "RuntimeError: can't start new thread"
    assert caplog.messages == [
        f"{WHO}hook {HOOK} is not called before the next change: starting its thread raised {no_thread}"
    ]


FORKS = """
    import os, threading
    from types import SimpleNamespace
    from lmcache_core.registry.listener import Listener, Listeners

    called, free, held = threading.Event(), threading.Event(), threading.Event()

    def hook(name, arguments):
        called.set()
        free.wait()

    def hold(lock):
        with lock:
            held.set()
            free.wait()

    plugin = SimpleNamespace(found=SimpleNamespace(name="acme"), hooks=SimpleNamespace(call=hook))
    listener = Listener(plugin, "told", limit_s=600, on_error=print)
    listener.tell({})
    called.wait()
    threading.Thread(target=hold, args=(listener._changed,), daemon=True).start()
    held.wait()
    child = os.fork()
    if not child:
        print(Listeners([listener]).settle(2), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    free.set()
    print(Listeners([listener]).settle(60), flush=True)
"""


def test_a_forked_child_waits_for_no_call_of_its_parent() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKS)], capture_output=True, text=True, check=False, timeout=60
    )

    assert run.stdout.splitlines() == ["True", "True"], run.stderr
