"""A lifeline stays open until it is let go, whatever interrupts those who ask it."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from lmcache_core.client.lifeline import DIED, ENDED, Lifeline
from lmcache_core.wire.farewell import LAST_WORD


class Interruption(BaseException):
    """As a signal's handler raises it, between any two steps."""


@pytest.fixture
def lifeline() -> Iterator[tuple[Lifeline, socket.socket]]:
    ours, theirs = socket.socketpair()
    lifeline = Lifeline(theirs)
    with ours:
        yield lifeline, ours
    lifeline.let_go()


def end_interrupted(lifeline: Lifeline, step: int) -> bool:
    """Ask how the other side ended, and raise at that step of it; whether it has so many."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        if frame.f_code is not Lifeline.end.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == step:
                raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        lifeline.end()
    except Interruption:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupted_question_does_not_close_it(lifeline: tuple[Lifeline, socket.socket]) -> None:
    line, server = lifeline
    server.sendall(LAST_WORD)
    step = 1
    while end_interrupted(line, step):
        os.fstat(line.fd)
        step += 1

    assert step > 20
    assert line.end() == ENDED


def test_it_says_how_the_other_side_ended(lifeline: tuple[Lifeline, socket.socket]) -> None:
    line, server = lifeline
    assert line.end() == ""
    server.close()

    assert (line.end(), line.end()) == (DIED, DIED)


@pytest.mark.parametrize("in_a_circle", [False, True])
def test_the_last_reference_closes_it(in_a_circle: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        holder: list[object] = [Lifeline(theirs)]
        if in_a_circle:
            holder.append(holder)
        del theirs, holder
        gc.collect()

        assert ours.recv(1) == b""


def test_it_may_be_let_go_twice(lifeline: tuple[Lifeline, socket.socket]) -> None:
    line, server = lifeline
    line.let_go()
    line.let_go()

    assert line.fd == -1
    assert server.recv(1) == b""
