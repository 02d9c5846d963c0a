"""Whose slow call may wait, and whose is next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.server.served import Served, until
from tests.core.server.talker import Talker, digests
from tests.memory_store import Gate

from lmcache_core.server import control
from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.server.turns import NOBODY, Turns
from lmcache_core.wire import messages as wire
from lmcache_core.wire.messages import RefusalCode

Talk = Callable[[Served], Talker]
MOST, AT_ONCE = 16, 3


def fill(turns: Turns[str], session: int) -> int:
    """Enter calls until they are refused; give how many were not."""
    for number in range(MOST + 1):
        try:
            turns.enter(session, f"{session}/{number}")
        except RefusedCallError:
            return number
    raise AssertionError("nothing bounds the calls")


def test_a_client_alone_has_three_quarters_and_leaves_room_for_the_next() -> None:
    turns: Turns[str] = Turns(MOST, AT_ONCE)

    assert [fill(turns, session) for session in (1, 2, 3)] == [12, 3, 1]
    assert turns.count(1) == 12


def test_the_refusal_says_whose_share_is_used_up() -> None:
    turns: Turns[str] = Turns(MOST, AT_ONCE)
    fill(turns, 1)
    with pytest.raises(RefusedCallError) as caught:
        turns.enter(1, "one more")

    assert (caught.value.code, caught.value.sentence) == (
        RefusalCode.BUSY,
        "12 calls of this client wait for slow tiers already, its share of 16 of which 12 are taken; recompute",
    )


def test_calls_of_nobody_have_no_share() -> None:
    assert fill(Turns(MOST, AT_ONCE), NOBODY) == MOST


def test_a_newcomer_is_next() -> None:
    turns: Turns[str] = Turns(MOST, AT_ONCE)
    fill(turns, 1)
    running = [turns.next() for _ in range(AT_ONCE)]
    turns.enter(2, "new")
    assert turns.next() is None
    turns.leave(1, running[0] or "")

    assert turns.next() == "new"


class TurnsMachine(RuleBasedStateMachine):
    """Whatever comes and goes, the bounds hold, each call runs once and nobody is passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: Turns[int] = Turns(MOST, AT_ONCE)
        self.waiting: dict[int, deque[int]] = {session: deque() for session in range(1, 5)}
        self.running: dict[int, int] = {}
        self.last = 0

    @rule(session=st.integers(1, 4))
    def enter(self, session: int) -> None:
        self.last += 1
        total = len(self.running) + sum(map(len, self.waiting.values()))
        own = len(self.waiting[session]) + Counter(self.running.values())[session]
        try:
            self.turns.enter(session, self.last)
        except RefusedCallError:
            assert total == MOST or own >= 3 * (MOST - total)
        else:
            assert total < MOST
            self.waiting[session].append(self.last)

    @rule()
    def run(self) -> None:
        call = self.turns.next()
        runs = Counter(self.running.values())
        ready = [session for session, calls in self.waiting.items() if calls]
        if call is None:
            assert not ready or len(self.running) == AT_ONCE
            return
        session = next(one for one in ready if self.waiting[one][0] == call)
        assert runs[session] == min(runs[one] for one in ready)
        self.waiting[session].popleft()
        self.running[call] = session

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.running)))
        session = self.running.pop(call)
        assert not self.turns.withdraw(session, call)
        self.turns.leave(session, call)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([one for one, calls in self.waiting.items() if calls]))
        call = data.draw(st.sampled_from(sorted(self.waiting[session])))
        self.waiting[session].remove(call)
        assert self.turns.withdraw(session, call)
        self.turns.leave(session, call)

    @invariant()
    def counts(self) -> None:
        runs = Counter(self.running.values())
        for session, calls in self.waiting.items():
            assert self.turns.count(session) == len(calls) + runs[session]


TestTurns = TurnsMachine.TestCase


@pytest.fixture
def crowded(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Served], talk: Talk
) -> Iterator[tuple[Served, Talker, Gate]]:
    """A client that has asked for all the slow calls it can get, while the store holds every question."""
    monkeypatch.setattr(control, "_MOST_SLOW_CALLS", MOST)
    monkeypatch.setattr(control, "_SLOW_WORKERS", 2)
    served = serve(timeout_s=20.0)
    greedy = talk(served).enter("greedy")
    gate = Gate("contains")
    served.rig.stores[0].fault = gate
    for number in range(MOST):
        greedy.say(greedy.build(wire.Lookup, digests=(digests(number),), requested_tokens=4, timeout_s=20.0))
    refused = [greedy.hear() for _ in range(4)]
    assert {one.code for one in refused if isinstance(one, wire.Refused)} == {RefusalCode.BUSY}
    assert until(lambda: gate.held == 2)  # what no thread has begun yet can be withdrawn too
    yield served, greedy, gate
    gate.open()


def test_one_client_cannot_keep_the_others_out(crowded: tuple[Served, Talker, Gate], talk: Talk) -> None:
    served, _greedy, gate = crowded
    other = talk(served).enter("other")
    message = other.build(wire.Lookup, digests=(digests("x"),), requested_tokens=4, timeout_s=20.0)
    other.say(message)
    other_status = until(lambda: [one["slow_calls"] for one in served.sessions()] == [12, 1])
    gate.open()

    assert other_status
    assert isinstance(other.hear(), wire.Found)
    assert [one["refused"] for one in served.sessions()] == [4, 0]


def test_a_client_that_dies_takes_the_calls_that_wait_with_it(crowded: tuple[Served, Talker, Gate]) -> None:
    served, greedy, gate = crowded
    greedy.die()
    assert until(lambda: served.server.slow_count() == 2)  # those that run end by themselves
    gate.open()

    assert until(lambda: served.server.slow_count() == 0 and served.is_exact())


def test_calls_that_wait_when_the_server_stops_never_run(crowded: tuple[Served, Talker, Gate]) -> None:
    served, _greedy, gate = crowded
    assert served.server.stop(drain_s=0.05) is False
    gate.open()

    assert until(served.is_exact)
