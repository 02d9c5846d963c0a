import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from lmcache_core.threads import (
    PeriodicThread,
    PeriodicThreadRegistry,
    ThreadLevel,
    ThreadRunSummary,
    describe_error,
)

FOR_EVER_S = 3600.0


class Beat(PeriodicThread):
    """Counts its runs and does what it is told in each."""

    def __init__(
        self,
        *,
        name: str = "beat",
        interval_s: float = FOR_EVER_S,
        init_wait_s: float = 0.0,
        registry: PeriodicThreadRegistry | None = None,
        work: Callable[[int], bool | None] = lambda _run: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(name, interval_s, ThreadLevel.LOW, init_wait_s, registry, clock=clock)
        self.work = work
        self.runs = 0
        self.ran = threading.Semaphore(0)
        self.exited = threading.Event()

    def _execute(self) -> ThreadRunSummary:
        self.runs += 1
        try:
            success = self.work(self.runs)
        finally:
            self.ran.release()
        return ThreadRunSummary(success=success is not False, message=f"run {self.runs}", extra_info={"n": self.runs})

    def _on_exit(self) -> None:
        self.exited.set()

    def await_run(self) -> None:
        assert self.ran.acquire(timeout=10)


@pytest.fixture
def make_beat() -> Iterator[Callable[..., Beat]]:
    beats: list[Beat] = []

    def make(**how: object) -> Beat:
        beats.append(Beat(**how))  # type: ignore[arg-type]
        return beats[-1]

    yield make
    for beat in beats:
        beat.stop()


MakeBeat = Callable[..., Beat]


def test_first_run_is_at_start(make_beat: MakeBeat) -> None:
    beat = make_beat()
    beat.start()
    beat.await_run()


def test_runs_again_after_the_interval(make_beat: MakeBeat) -> None:
    beat = make_beat(interval_s=0.001)
    beat.start()
    for _ in range(5):
        beat.await_run()


def test_init_wait_comes_before_the_first_run(make_beat: MakeBeat) -> None:
    beat = make_beat(init_wait_s=FOR_EVER_S)
    beat.start()

    assert not beat.ran.acquire(timeout=0.05)


def test_wake_ends_the_init_wait(make_beat: MakeBeat) -> None:
    beat = make_beat(init_wait_s=FOR_EVER_S)
    beat.start()
    beat.wake()
    beat.await_run()


def test_wake_ends_the_interval(make_beat: MakeBeat) -> None:
    beat = make_beat()
    beat.start()
    beat.await_run()
    beat.wake()
    beat.await_run()


def test_wake_during_a_run_gives_one_more_run(make_beat: MakeBeat) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def work(run: int) -> None:
        if run == 1:
            entered.set()
            assert go_on.wait(10)

    beat = make_beat(work=work)
    beat.start()
    assert entered.wait(10)
    beat.wake()
    go_on.set()
    beat.await_run()
    beat.await_run()


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_an_error_does_not_end_the_thread(make_beat: MakeBeat, error: BaseException) -> None:
    def work(run: int) -> None:
        if run == 1:
            raise error

    beat = make_beat(work=work, interval_s=0.001)
    beat.start()
    beat.await_run()
    beat.await_run()

    assert beat.is_running
    assert beat.error_runs == 1


def test_a_streak_of_equal_errors_is_logged_once_with_its_traceback(
    make_beat: MakeBeat, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["first", "first", "second", None, "first"]

    def work(run: int) -> None:
        if run <= len(texts) and texts[run - 1]:
            raise RuntimeError(texts[run - 1])

    beat = make_beat(work=work, interval_s=0.001)
    with caplog.at_level(logging.ERROR):
        beat.start()
        for _ in range(len(texts) + 1):
            beat.await_run()

    assert [record.getMessage() for record in caplog.records] == [
        "thread beat: a run failed with RuntimeError: first; it goes on",
        "thread beat: a run failed with RuntimeError: second; it goes on",
        "thread beat: a run failed with RuntimeError: first; it goes on",
    ]
    assert all(record.exc_info for record in caplog.records)


def test_stop_ends_a_waiting_thread_at_once(make_beat: MakeBeat) -> None:
    beat = make_beat()
    beat.start()
    beat.await_run()

    assert beat.stop() is True
    assert not beat.is_running
    assert beat.exited.is_set()


def test_stop_before_start_is_no_error(make_beat: MakeBeat) -> None:
    assert make_beat().stop() is True


def test_stop_does_not_wait_for_a_hanging_run(make_beat: MakeBeat, caplog: pytest.LogCaptureFixture) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def work(_run: int) -> None:
        entered.set()
        go_on.wait(10)

    beat = make_beat(work=work)
    beat.start()
    assert entered.wait(10)

    assert beat.stop(timeout_s=0.01) is False
    assert caplog.messages == ["thread beat did not end within 0.0 s; it ends after its run"]
    go_on.set()
    assert beat.exited.wait(10)


def test_a_long_run_can_see_that_it_should_stop(make_beat: MakeBeat) -> None:
    seen: list[bool] = []
    beat = make_beat(work=lambda _run: seen.append(beat.stop_requested))
    beat.start()
    beat.await_run()
    beat.stop()

    assert (seen, beat.stop_requested) == ([False], True)


def test_starts_only_once(make_beat: MakeBeat) -> None:
    beat = make_beat()
    beat.start()
    with pytest.raises(RuntimeError) as caught:
        beat.start()

    assert str(caught.value) == "thread 'beat' was started before; make a new one"


@pytest.mark.parametrize("interval_s", [0, -5, float("nan"), float("inf")])
def test_an_interval_that_would_be_a_busy_loop_or_never_is_refused(interval_s: float) -> None:
    with pytest.raises(ValueError) as caught:
        Beat(interval_s=interval_s)

    assert str(caught.value) == f"thread 'beat': interval_s must be a finite number above 0, got {interval_s!r}"


def test_a_negative_first_wait_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        Beat(init_wait_s=-1.0)

    assert str(caught.value) == "thread 'beat': init_wait_s must be a finite number of at least 0, got -1.0"


def test_it_is_a_daemon_with_its_name(make_beat: MakeBeat) -> None:
    seen: list[threading.Thread] = []
    beat = make_beat(work=lambda _run: seen.append(threading.current_thread()))
    beat.start()
    beat.await_run()

    assert (seen[0].name, seen[0].daemon) == ("beat", True)


def test_status_before_the_first_run() -> None:
    assert Beat().get_status() == {
        "name": "beat",
        "level": "low",
        "interval_s": FOR_EVER_S,
        "is_running": False,
        "is_active": False,
        "total_runs": 0,
        "failed_runs": 0,
        "error_runs": 0,
        "success_rate": 1.0,
        "last_run_age_s": None,
        "last_error": "",
        "last_summary": None,
        "end_reason": "",
    }


def test_status_counts_failures_and_errors(make_beat: MakeBeat) -> None:
    def work(run: int) -> bool:
        if run == 1:
            raise RuntimeError("boom")
        return run != 2

    beat = make_beat(work=work, interval_s=0.001)
    beat.start()
    for _ in range(4):
        beat.await_run()
    beat.stop()
    status = beat.get_status()

    assert status["failed_runs"] == 2
    assert status["error_runs"] == 1
    assert status["success_rate"] == (beat.runs - 2) / beat.runs
    assert status["last_summary"] == {"success": True, "message": f"run {beat.runs}", "extra_info": {"n": beat.runs}}


def test_is_active_until_three_intervals_after_the_last_run(make_beat: MakeBeat) -> None:
    now = [0.0]
    beat = make_beat(interval_s=100.0, clock=lambda: now[0])
    beat.start()
    beat.await_run()
    now[0] = 299.9
    active_before = beat.is_active
    now[0] = 300.0

    assert (active_before, beat.is_active) == (True, False)


def test_is_active_during_the_init_wait(make_beat: MakeBeat) -> None:
    now = [0.0]
    beat = make_beat(interval_s=100.0, init_wait_s=1000.0, clock=lambda: now[0])
    beat.start()
    now[0] = 1200.0

    assert beat.is_active


def test_registry_holds_a_thread_from_start_to_stop(make_beat: MakeBeat) -> None:
    registry = PeriodicThreadRegistry()
    beat = make_beat(registry=registry)
    before = registry.threads()
    beat.start()
    during = registry.get("beat")
    beat.stop()

    assert (before, during, registry.get("beat")) == ([], beat, None)


def test_a_taken_name_is_an_error_and_starts_nothing(make_beat: MakeBeat) -> None:
    registry = PeriodicThreadRegistry()
    make_beat(registry=registry).start()
    second = make_beat(registry=registry)
    with pytest.raises(RuntimeError) as caught:
        second.start()

    assert str(caught.value) == "thread name 'beat' is taken; stop that thread first or choose another name"
    assert not second.is_running


def test_stopping_a_namesake_that_never_entered_leaves_the_registered_one(make_beat: MakeBeat) -> None:
    registry = PeriodicThreadRegistry()
    first = make_beat(registry=registry)
    first.start()
    registry.unregister(Beat())

    assert registry.get("beat") is first


def test_threads_and_statuses_are_sorted_by_name(make_beat: MakeBeat) -> None:
    registry = PeriodicThreadRegistry()
    for name in ("b", "a"):
        make_beat(name=name, registry=registry).start()

    assert [thread.name for thread in registry.threads()] == ["a", "b"]
    assert [status["name"] for status in registry.statuses()] == ["a", "b"]


def test_an_error_whose_text_raises_can_be_described() -> None:
    class NastyError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe_error(NastyError()) == "NastyError: its text cannot be read"


def test_an_error_without_text_is_its_type() -> None:
    assert describe_error(TimeoutError()) == "TimeoutError"


@pytest.fixture
def at_start(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is done where a thread is about to be started by its owner."""
    deeds: list[Callable[[], object]] = []
    start = threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        while deeds:
            deeds.pop()()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    return deeds


def test_a_thread_that_is_being_started_is_not_taken_for_dead(
    make_beat: MakeBeat, at_start: list[Callable[[], object]]
) -> None:
    """It is in the registry already, and a health check may look there."""
    registry, seen = PeriodicThreadRegistry(), []
    at_start.append(lambda: seen.extend(report.is_alive for report in registry.reports()))
    make_beat(registry=registry).start()

    assert seen == [True]


def test_a_thread_that_cannot_be_started_is_dead(make_beat: MakeBeat, at_start: list[Callable[[], object]]) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    registry = PeriodicThreadRegistry()
    beat = make_beat(registry=registry)
    at_start.append(refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        beat.start()

    assert [report.is_alive for report in registry.reports()] == [False]
    assert beat.stop()


def test_a_stop_while_it_is_being_started_ends_it(make_beat: MakeBeat, at_start: list[Callable[[], object]]) -> None:
    stopped = []
    beat = make_beat()
    at_start.append(lambda: stopped.append(beat.stop(0.0)))
    beat.start()

    assert stopped == [False]  # not yet
    assert beat.stop()
    assert beat.runs == 0
