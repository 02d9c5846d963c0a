import logging
import queue
import threading
from collections.abc import Iterator

import pytest

from lmcache_core.ops.grpc_outbox import Outbox


class Stream:
    """A watcher's stream; a send waits until it may go on."""

    def __init__(self, *, open: bool = True) -> None:  # noqa: A002 - a gate is open or it is not
        self.sent: queue.Queue[str | None] = queue.Queue()
        self.asked = threading.Event()
        self.gate = threading.Event()
        if open:
            self.gate.set()

    def send(self, answer: str | None) -> None:
        self.asked.set()
        assert self.gate.wait(10)
        self.sent.put(answer)

    def next(self) -> str | None:
        return self.sent.get(timeout=10)


@pytest.fixture
def outbox() -> Iterator[Outbox]:
    box = Outbox()
    yield box
    box.close()


def test_answers_arrive_in_their_order(outbox: Outbox) -> None:
    stream = Stream()
    hear = outbox.behind(stream.send)
    hear("first")
    first = stream.next()
    hear("second")

    assert [first, stream.next()] == ["first", "second"]


def test_who_tells_a_slow_watcher_does_not_wait_for_it(outbox: Outbox) -> None:
    stream = Stream(open=False)
    hear = outbox.behind(stream.send)
    hear("first")
    stream.asked.wait(10)
    hear("second")  # returns, though the first is still on its way
    stream.gate.set()

    assert [stream.next(), stream.next()] == ["first", "second"]


def test_a_slow_watcher_gets_only_the_newest_of_what_it_missed(outbox: Outbox) -> None:
    stream = Stream(open=False)
    hear = outbox.behind(stream.send)
    hear("first")
    stream.asked.wait(10)
    for number in range(100):
        hear(f"missed {number}")
    stream.gate.set()

    assert [stream.next(), stream.next()] == ["first", "missed 99"]


def test_the_end_is_the_last_word(outbox: Outbox) -> None:
    stream, other = Stream(open=False), Stream()
    hear = outbox.behind(stream.send)
    hear("first")
    stream.asked.wait(10)
    hear(None)
    hear("too late")
    stream.gate.set()
    outbox.behind(other.send)("after it")
    other.next()

    assert [stream.next(), stream.next(), stream.sent.empty()] == ["first", None, True]


def test_a_stream_that_breaks_costs_its_watcher_only(outbox: Outbox, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_answer: str) -> None:
        raise ValueError("this stream is broken")

    outbox.behind(broken)("first")
    other = Stream()
    outbox.behind(other.send)("second")

    assert other.next() == "second"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "internal_grpc: a watcher could not be told, and hears of the next change"
    ]


def test_a_watcher_that_no_thread_could_tell_hears_of_the_next_change(
    outbox: Outbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stream = Stream()
    hear = outbox.behind(stream.send)
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        hear("first")
    hear("second")

    assert stream.next() == "second"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "internal_grpc: a watcher could not be told (can't start new thread), and hears of the next change"
    ]


def test_after_its_close_nothing_is_sent(outbox: Outbox) -> None:
    stream = Stream()
    outbox.close()
    outbox.behind(stream.send)("too late")

    assert stream.sent.empty()
