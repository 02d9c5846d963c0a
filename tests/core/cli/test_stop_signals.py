"""Signals that end a server."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from lmcache_core.cli.stop_signals import StopSignals


@pytest.mark.parametrize("one", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_handed_over(one: signal.Signals) -> None:
    with StopSignals() as signals:
        os.kill(os.getpid(), one)

        assert signals.wait(5) is one


def test_no_signal_is_none() -> None:
    with StopSignals() as signals:
        assert signals.wait(0) is None


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGTERM, signal.SIGINT, 130),
        (signal.SIGINT, signal.SIGINT, 130),
    ],
)
def test_the_second_ends_at_once(first: signal.Signals, second: signal.Signals, code: int) -> None:
    ended: list[int] = []
    with StopSignals(ended.append):
        os.kill(os.getpid(), first)
        assert ended == []
        os.kill(os.getpid(), second)

    assert ended == [code]


def test_a_hangup_is_no_first_one() -> None:
    ended: list[int] = []
    with StopSignals(ended.append):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)

    assert ended == []


def test_handlers_are_as_they_were() -> None:
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with StopSignals():
        pass

    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_a_signal_that_the_system_hands_to_another_thread_is_noted() -> None:
    over = threading.Event()

    def take() -> None:
        over.wait(0.5)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        over.wait()

    with StopSignals(lambda _code: None) as signals:
        thread = threading.Thread(target=take)
        thread.start()
        came = signals.wait(10.0)
        over.set()
        thread.join()

    assert came is signal.SIGTERM
