"""A bounded pool of daemon threads for calls that may hang.

Why not `concurrent.futures.ThreadPoolExecutor`: its threads are joined when the interpreter ends, so
that one store that never answers would keep the whole process from ending.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_Job = tuple["Future[object]", Callable[[], object]]


class WorkerPool:
    """Runs callables on at most `workers` daemon threads, started as they are needed.

    Args:
        name: Prefix of the threads' names.
        workers: Most threads, at least 1.
    """

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        self._limit = workers
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether every thread has a job, so that a new one would wait."""
        return self._unfinished >= self._limit

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a callable; its result or exception arrives in the future.

        A caller that stops waiting leaves the job running; add a done callback to free what it uses.

        Raises:
            RuntimeError: The pool is closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"worker pool {self._name!r} is closed")
            self._unfinished += 1
            start = self._unfinished > self._threads and self._threads < self._limit
            if start:
                self._start()
            # Under the lock: behind what `close` queues for the threads, nobody would ever find it.
            self._jobs.put((future, call))  # type: ignore[arg-type] # Future is invariant; only this pool reads it
        return future

    def close(self) -> None:
        """Take no more jobs and let idle threads end; running jobs are left to themselves."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = self._threads
        for _ in range(threads):
            self._jobs.put(None)

    def _start(self) -> None:
        name = f"{self._name}-{self._threads + 1}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except BaseException:
            self._unfinished -= 1
            raise
        self._threads += 1

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            try:
                if future.set_running_or_notify_cancel():
                    self._finish(future, call)
            finally:
                with self._lock:
                    self._unfinished -= 1

    @staticmethod
    def _finish(future: Future[object], call: Callable[[], object]) -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - whatever a job raises, SystemExit included, belongs to its caller
            future.set_exception(error)
        else:
            future.set_result(result)
