import subprocess
import sys
import threading

import pytest

from lmcache_core.workers import WorkerPool


def test_a_result_arrives() -> None:
    assert WorkerPool("pool", 1).submit(lambda: 7).result(10) == 7


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_job_raises_arrives_and_the_thread_lives(error: BaseException) -> None:
    def job() -> None:
        raise error

    pool = WorkerPool("pool", 1)
    assert pool.submit(job).exception(10) is error
    assert pool.submit(lambda: 1).result(10) == 1


def test_jobs_run_at_once_up_to_the_limit() -> None:
    barrier = threading.Barrier(3)
    pool = WorkerPool("pool", 3)
    futures = [pool.submit(lambda: barrier.wait(10)) for _ in range(3)]

    assert sorted(future.result(10) for future in futures) == [0, 1, 2]


def test_a_hanging_job_leaves_the_other_threads_to_others() -> None:
    release = threading.Event()
    pool = WorkerPool("pool", 2)
    hanging = pool.submit(release.wait)

    assert pool.submit(lambda: "served").result(10) == "served"
    assert not hanging.done()
    release.set()


def test_busy_when_every_thread_has_a_job() -> None:
    release = threading.Event()
    pool = WorkerPool("pool", 1)
    before = pool.busy
    job = pool.submit(release.wait)
    during = pool.busy
    release.set()
    job.result(10)

    assert (before, during) == (False, True)


def test_a_cancelled_job_that_has_not_begun_never_runs() -> None:
    release = threading.Event()
    ran: list[int] = []
    pool = WorkerPool("pool", 1)
    hanging = pool.submit(release.wait)
    waiting = pool.submit(lambda: ran.append(1))

    assert waiting.cancel()
    release.set()
    hanging.result(10)
    pool.submit(lambda: None).result(10)
    assert ran == []


def test_cancelling_queued_jobs_kills_no_thread() -> None:
    """A peer's workers died for good when a queued get was cancelled."""
    release = threading.Event()
    pool = WorkerPool("pool", 2)
    hanging = [pool.submit(release.wait) for _ in range(2)]
    for future in [pool.submit(lambda: None) for _ in range(12)]:
        future.cancel()
    release.set()
    for future in hanging:
        future.result(10)
    barrier = threading.Barrier(2)

    both = [pool.submit(lambda: barrier.wait(10)) for _ in range(2)]
    assert sorted(future.result(10) for future in both) == [0, 1]


def test_a_closed_pool_takes_no_jobs() -> None:
    pool = WorkerPool("pool", 1)
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError) as caught:
        pool.submit(lambda: None)

    assert str(caught.value) == "worker pool 'pool' is closed"


def test_a_job_that_never_ends_does_not_keep_the_process() -> None:
    script = (
        "import threading\n"
        "from lmcache_core.workers import WorkerPool\n"
        "started = threading.Event()\n"
        "WorkerPool('pool', 1).submit(lambda: (started.set(), threading.Event().wait()))\n"
        "started.wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=30, check=False).returncode == 0


def test_a_thread_that_cannot_start_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = WorkerPool("pool", 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            pool.submit(lambda: 0)

    assert pool.submit(lambda: 7).result(10) == 7


def test_a_job_is_never_left_behind_the_end() -> None:
    """`close` may come just before the job is queued: its threads must find it all the same."""
    pool = WorkerPool("pool", 1)
    jobs = pool._jobs

    class Queue:
        get = staticmethod(jobs.get)

        def put(self, job: object) -> None:
            if job is not None:
                closing = threading.Thread(target=pool.close)
                closing.start()
                closing.join(0.2)
            jobs.put(job)  # type: ignore[arg-type]

    pool._jobs = Queue()  # type: ignore[assignment]

    assert pool.submit(lambda: "done").result(10) == "done"
