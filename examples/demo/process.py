"""One process of the demo: it loads the model, opens the cache, answers, and tells its parent about it.

Run as a program: ``python -m examples.demo.process JOB``, where JOB is a `Job` as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.demo.channel import Channel
from examples.demo.generate import Generator
from examples.demo.job import Job
from examples.demo.model import load

from lmcache_core import CacheManager, KVLayout
from lmcache_plugins.transformers.generation import CachedGeneration

ANSWER_TOKENS = 32
FLUSH_TIMEOUT_S = 30.0
VERDICT_TIMEOUT_S = 30.0


class Process:
    """Answers one question, once or, around an outage or to show that it comes again, twice."""

    def __init__(self, job: Job, channel: Channel) -> None:
        self._job = job
        self._channel = channel
        self._start = time.monotonic()

    def run(self) -> None:
        """Do the job."""
        model, self._tokenizer = load(Path(self._job.model), self._channel)
        self._prompt = self._job.prompt(self._tokenizer)
        layout = CachedGeneration.layout_of(model)
        with self._open(layout) as manager:
            self._generator = Generator(model, manager, self._channel.progress, whole=self._job.whole)
            if self._job.outage and manager is not None:
                self._around_an_outage(manager, layout)
                return
            self._answer("", manager, layout)
            if self._job.whole:
                self._answer("again", manager, layout)

    @contextmanager
    def _open(self, layout: KVLayout) -> Iterator[CacheManager | None]:
        if self._job.config is None:
            yield None
            return
        with CacheManager.from_config(
            self._job.config,
            overrides={"save_unfull_chunk": self._job.whole},
            layout=layout,
            model_name="smollm2-135m",
        ) as manager:
            self._await_verdict(manager, healthy=True)
            yield manager

    def _around_an_outage(self, manager: CacheManager, layout: KVLayout) -> None:
        self._tell_verdict("before", manager)
        self._channel.wait("take the store away")
        self._await_verdict(manager, healthy=False)
        self._tell_verdict("during", manager)
        self._answer("during", manager, layout)
        self._channel.wait("bring the store back")
        self._await_verdict(manager, healthy=True)
        self._tell_verdict("after", manager)
        self._answer("after", manager, layout)

    def _answer(self, moment: str, manager: CacheManager | None, layout: KVLayout) -> None:
        loaded_before, written_before = _count(manager, "loaded_chunks"), _count(manager, "written_chunks")
        made = self._generator.answer(self._prompt, limit_tokens=ANSWER_TOKENS, request_id=f"demo {moment}")
        if manager is not None and not manager.storage.flush(timeout_s=FLUSH_TIMEOUT_S):
            raise SystemExit(f"the store did not take all chunks within {FLUSH_TIMEOUT_S:.0f} s")
        chunk_bytes = layout.bytes_per_token * 256
        self._channel.send(
            "answer",
            moment=moment,
            prompt_tokens=len(self._prompt),
            reused_tokens=made.reused_tokens,
            stored_bytes=(_count(manager, "written_chunks") - written_before) * chunk_bytes,
            loaded_bytes=(_count(manager, "loaded_chunks") - loaded_before) * chunk_bytes,
            first_token_s=made.first_token_s,
            tokens=made.tokens,
            text=self._tokenizer.decode(made.tokens, skip_special_tokens=True).strip(),
        )

    def _await_verdict(self, manager: CacheManager, *, healthy: bool) -> None:
        deadline = time.monotonic() + VERDICT_TIMEOUT_S
        while manager.is_healthy() is not healthy or manager.health.report().state == "unknown":
            if time.monotonic() > deadline:
                raise SystemExit(f"the verdict did not become healthy={healthy} within {VERDICT_TIMEOUT_S:.0f} s")
            time.sleep(0.05)

    def _tell_verdict(self, moment: str, manager: CacheManager) -> None:
        report = manager.health.report()
        self._channel.send(
            "verdict",
            moment=moment,
            at_s=time.monotonic() - self._start,
            healthy=report.healthy,
            state=report.state.value,
            reason=report.reason,
            checks=[[check.name, check.state.value, check.reason] for check in report.checks],
        )


def _count(manager: CacheManager | None, family: str) -> int:
    """Sum a counter over all backends."""
    if manager is None:
        return 0
    families = manager.metrics.registry.collect()
    return sum(
        int(sample.value)
        for found in families
        if found.name == f"lmcache:{family}"
        for sample in found.samples
        if sample.name.endswith("_total")
    )


if __name__ == "__main__":
    Process(Job(**json.loads(sys.argv[1])), Channel()).run()
