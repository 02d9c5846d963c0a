"""What a plugin makes, or does not: it may raise or hang, and the caller learns who and why."""

import re
import threading
from collections.abc import Callable

import pytest
from tests.stalled_plugins import LIMIT_S, PLACE, WAY_OUT, StalledPlugins

from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.registry.make import make
from lmcache_core.registry.record import Declared

THEIRS = Declared("acme", "acme-checks 2.0", object)
OURS = Declared("file", "lmcache-core 0.1.0", object, builtin=True)


def fail(error: BaseException) -> object:
    raise error


def test_gives_what_is_made() -> None:
    assert make(THEIRS, "AcmeCheck.create", lambda: [1], limit_s=60) == [1]


def test_a_third_partys_call_is_not_on_the_callers_thread() -> None:
    assert make(THEIRS, "AcmeCheck.create", threading.current_thread, limit_s=60) is not threading.current_thread()


def test_a_built_in_call_is_on_the_callers_thread() -> None:
    assert make(OURS, "FileCheck.create", threading.current_thread, limit_s=60) is threading.current_thread()


@pytest.mark.parametrize("declared", [THEIRS, OURS])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("no licence\nat all"), "RuntimeError: no licence"),
        (SystemExit(3), "SystemExit(3); a plugin must not end its host"),
        (ConfigError("wrong"), "ConfigError: wrong"),
    ],
)
def test_what_it_raises_is_the_plugins_fault(error: BaseException, text: str, declared: Declared[type[object]]) -> None:
    with pytest.raises(PluginError) as caught:
        make(declared, "AcmeCheck.create", lambda: fail(error), limit_s=60)

    assert (caught.value.plugin, caught.value.reason) == (declared.plugin, f"AcmeCheck.create raised {text}")
    assert caught.value.__cause__ is error


def test_a_users_fault_passes_as_it_is() -> None:
    with pytest.raises(ConfigError, match=r"^wrong address$"):
        make(THEIRS, "build", lambda: fail(ConfigError("wrong address")), limit_s=60, passes=(ConfigError,))


def test_a_plugins_own_sentence_passes_as_it_is() -> None:
    mine = PluginError(plugin="acme", origin="acme-checks 2.0", reason="needs more")

    with pytest.raises(PluginError) as caught:
        make(THEIRS, "build", lambda: fail(mine), limit_s=60)

    assert caught.value is mine


@pytest.mark.parametrize("declared", [THEIRS, OURS])
def test_a_sentence_about_another_plugin_is_its_own_fault(declared: Declared[type[object]]) -> None:
    """Else a required plugin could fail under a name that nobody requires."""
    theirs = PluginError(plugin="other", origin="other 1.0", reason="needs more")

    with pytest.raises(PluginError) as caught:
        make(declared, "build", lambda: fail(theirs), limit_s=60)

    assert str(caught.value) == (
        f"plugin {declared.plugin!r} ({declared.origin}): "
        "build raised PluginError: plugin 'other' (other 1.0): needs more"
    )


def wait_in(stalls: StalledPlugins) -> object:
    return stalls.module.wait_for_an_answer()


def test_one_that_hangs_is_left_behind_with_its_place(stalls: StalledPlugins) -> None:
    with pytest.raises(PluginError) as caught:
        make(THEIRS, "AcmeCheck.create", lambda: wait_in(stalls), limit_s=LIMIT_S)

    reason = rf"AcmeCheck\.create is still running after {LIMIT_S:g} s {PLACE}; {WAY_OUT}"
    assert re.fullmatch(reason, caught.value.reason)


def test_its_stack_is_in_the_cause(stalls: StalledPlugins) -> None:
    with pytest.raises(PluginError) as caught:
        make(THEIRS, "AcmeCheck.create", lambda: wait_in(stalls), limit_s=LIMIT_S)

    assert "in wait_in\n    return stalls.module.wait_for_an_answer()" in str(caught.value.__cause__)


def test_one_that_still_hangs_is_not_waited_for_again(stalls: StalledPlugins) -> None:
    with pytest.raises(PluginError):
        make(THEIRS, "AcmeCheck.create", lambda: wait_in(stalls), limit_s=LIMIT_S)

    with pytest.raises(PluginError) as caught:
        make(THEIRS, "AcmeCheck.create", lambda: wait_in(stalls), limit_s=3600)

    assert caught.value.reason == (
        f"AcmeCheck.create is still running since an earlier start in this process; {WAY_OUT}"
    )


def give_up_on(
    stalls: StalledPlugins, gives: Callable[[], object], close: Callable[[object], None] | None = None
) -> None:
    def late() -> object:
        wait_in(stalls)
        return gives()

    with pytest.raises(PluginError):
        make(THEIRS, "build", late, limit_s=LIMIT_S, close=close)
    stalls.let_go()


def test_what_comes_too_late_is_closed(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    closed: list[object] = []
    give_up_on(stalls, gives=lambda: 7, close=closed.append)

    assert closed == [7]
    assert caplog.messages == [
        f"plugin 'acme' (acme-checks 2.0): build has returned after all, too late, so what it made is closed again; {WAY_OUT}"
    ]


def test_what_comes_too_late_and_cannot_be_closed_is_dropped(
    stalls: StalledPlugins, caplog: pytest.LogCaptureFixture
) -> None:
    give_up_on(stalls, gives=lambda: 7)

    assert caplog.messages == [
        f"plugin 'acme' (acme-checks 2.0): build has returned after all, too late, so what it made is not used; {WAY_OUT}"
    ]


def test_one_that_raises_too_late_is_logged(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    give_up_on(stalls, gives=lambda: fail(RuntimeError("no licence")), close=lambda _made: fail(AssertionError()))

    assert caplog.messages == [
        "plugin 'acme' (acme-checks 2.0): build has ended after all, too late, with RuntimeError: no licence"
    ]


def test_a_close_that_raises_is_logged(stalls: StalledPlugins, caplog: pytest.LogCaptureFixture) -> None:
    give_up_on(stalls, gives=lambda: 7, close=lambda _made: fail(SystemExit(1)))

    (message,) = caplog.messages
    assert message.endswith("ended after all, too late, with SystemExit(1); a plugin must not end its host")
