"""A soak: workers, a cache server with a disk and a Redis behind it, and everything that goes wrong.

Run: ``python -m tests.soak.run --minutes 10``. Ends with 1 when something was wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.redis_server import RedisServer
from tests.soak.chaos import Chaos
from tests.soak.content import CHUNK_TOKENS, MODELS
from tests.soak.figures import Sample, sample
from tests.soak.server_process import ServerProcess
from tests.soak.staff import Staff
from tests.soak.worker import CALL_TIMEOUT_S

from lmcache_core import connect

_TICK_S = 0.1
_SAMPLE_S = 1.0
_TELL_S = 10.0
_SETTLE_S = 20.0
_SLACK_S = 3.0
"""What a machine with four times as many workers as cores may add to a call's own limit."""

_MIB = 1 << 20
CONFIG = """
chunk_size = {chunk_tokens}
max_local_cpu_size = 0.046875  # 48 MiB: a hundred and some chunks of the larger model, so much is evicted
local_disk = "{folder}/disk"
max_local_disk_size = 0.0625
remote_url = "{redis}"
blocking_timeout_secs = 1.0
pin_timeout_sec = 5.0
server_drain_secs = 2.0
internal_api_server_enabled = true
internal_api_server_port_start = 0

[extra_config]
ping_interval = 1.0
ping_timeout = 0.3
waiting_time_for_recovery = 1.0
fallback_policy = "bypass"
"""


@dataclass(frozen=True)
class Plan:
    """How long, how many, by which seed, and what is allowed.

    Attributes:
        most_growth: Of resident memory, as a share, from the first to the last fifth after the warm-up. Allocators keep the
            pages of their peaks, so it rises without a leak, on a slow machine for a quarter of an hour;
            `tests.soak.rest` looks for small leaks.
    """

    seconds: float
    seed: int
    workers: int = 8
    warm_up_s: float = 120.0
    most_growth: float = 0.04
    restarts: bool = False
    tell: Callable[[str], None] = print


@dataclass
class Report:
    """What a soak found."""

    plan: Plan
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    chaos: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    longest_s: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    status: Mapping[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For people."""
        calls = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in sorted(self.longest_s.items()))
        first, last = self.spans()
        return [
            f"seed {self.plan.seed}, {self.plan.seconds:.0f} s, {self.plan.workers} workers",
            f"faults    {dict(self.chaos)}; workers ended with {dict(self.codes)}",
            f"requests  {dict(self.counts)}",
            f"longest   {calls}",
            f"resident  {_mib(first, 'rss_bytes')} -> {_mib(last, 'rss_bytes')} MiB",
            f"anonymous {_mib(first, 'anonymous_bytes')} -> {_mib(last, 'anonymous_bytes')} MiB",
            f"files     {_median(first, 'files'):.0f} -> {_median(last, 'files'):.0f}",
            f"server    {dict(self.status.get('counters', {}))}",
            *(f"WRONG     {problem}" for problem in self.problems),
        ]

    def spans(self) -> tuple[list[Sample], list[Sample]]:
        """Samples of the first and of the last fifth after the warm-up."""
        after = [one for one in self.samples if one.at_s >= self.plan.warm_up_s]
        fifth = max(1, len(after) // 5)
        return after[:fifth], after[-fifth:]


def soak(plan: Plan) -> Report:
    """Run, and judge."""
    report = Report(plan)
    rng = random.Random(plan.seed)
    plan.tell(f"soak: seed {plan.seed}, {plan.seconds:.0f} s, {plan.workers} workers")
    with tempfile.TemporaryDirectory(prefix="lmc-soak-") as name:
        folder = Path(name)
        options = ("--maxmemory", "96mb", "--maxmemory-policy", "allkeys-lru")
        with RedisServer(options=options) as redis:
            config = CONFIG.format(chunk_tokens=CHUNK_TOKENS, folder=folder, redis=redis.url)
            with ServerProcess(config, folder) as server, Staff(folder, server.address, plan.seed) as staff:
                chaos = Chaos(staff, redis, server, rng, restarts=plan.restarts)
                _drive(report, staff, server, chaos)
                chaos.end()
                _end(report, staff, server, chaos.stopped)
                report.chaos = chaos.counts
            _read_log(report, folder / "server.log")
    return report


def _drive(report: Report, staff: Staff, server: ServerProcess, chaos: Chaos) -> None:
    plan = report.plan
    for number in range(plan.workers):
        staff.hire(number)
    staff.wait_for(plan.workers)
    started = time.monotonic()
    sample_s, tell_s = 0.0, _TELL_S
    while (now_s := time.monotonic() - started) < plan.seconds:
        chaos.act(now_s)
        if now_s >= sample_s:
            sample_s = now_s + _SAMPLE_S
            report.samples.append(sample(server.pid, now_s))
        if now_s >= tell_s:
            tell_s = now_s + _TELL_S
            _tell(report, staff, now_s)
        if server.exit_code is not None:
            report.problems.append(f"the server ended with {server.exit_code} after {now_s:.0f} s")
            return
        time.sleep(_TICK_S)


def _tell(report: Report, staff: Staff, now_s: float) -> None:
    counts: Counter[str] = Counter()
    for figures in staff.figures():
        counts.update(figures["counts"])
    last = report.samples[-1]
    report.plan.tell(
        f"soak: {now_s:4.0f} s  {counts['requests']} requests, {counts['verified_chunks']} chunks verified, "
        f"{sum(count for code, count in staff.codes.items() if code < 0)} workers killed, "
        f"resident {last.rss_bytes / _MIB:.1f} MiB, anonymous {last.anonymous_bytes / _MIB:.1f} MiB, {last.files} files"
    )


def _end(report: Report, staff: Staff, server: ServerProcess, stopped: set[int]) -> None:
    """Let the workers end, then ask the server whether anything is left."""
    staff.dismiss()
    report.codes = staff.codes
    for figures in staff.figures():
        report.counts.update(figures["counts"])
        longest_s = {} if figures["pid"] in stopped else figures["longest_s"]
        for kind, seconds in longest_s.items():
            report.longest_s[kind] = max(report.longest_s.get(kind, 0.0), seconds)
        if figures["wrong"]:
            report.problems.append(f"worker {figures['number']}: {figures['wrong']}")
    late = {kind: s for kind, s in report.longest_s.items() if kind != "clear" and s > CALL_TIMEOUT_S + _SLACK_S}
    if late:
        report.problems.append(
            f"calls that took longer than {CALL_TIMEOUT_S} s and {_SLACK_S} s of a busy machine: {late}"
        )
    odd = {code: count for code, count in staff.codes.items() if code not in (0, -9)}
    if odd:
        report.problems.append(f"workers ended with {odd}")
    if server.exit_code is None:
        _judge_rest(report, server)
        _judge_threads(report)
    _judge_samples(report)
    _judge_coverage(report)


def _judge_rest(report: Report, server: ServerProcess) -> None:
    """No session, lease, promise or waiting write; and an arena that is empty once it is cleared."""
    status, left = settle(server)
    report.status = status
    if left:
        report.problems.append(f"left {_SETTLE_S:.0f} s after the last worker: {left}")
    if not status["health"]["healthy"] or status["health"]["state"] != "up":
        report.problems.append(f"unhealthy at the end: {status['health']}")
    layout = MODELS[0].layout
    with connect(environ={}, address=server.address, layout=layout, model_name=MODELS[0].name) as cache:
        cleared = cache.clear()
        arena = server.status()["arena"]
    if arena["used_bytes"] or arena["chunks"]:
        report.problems.append(f"after a clear the arena still holds {arena}; {cleared}")


def settle(server: ServerProcess) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Wait until nothing is left of workers that have ended; give the last status, and what is left all the same."""
    until = time.monotonic() + _SETTLE_S
    while (left := _left(status := server.status())) and time.monotonic() < until:
        time.sleep(0.2)
    return status, left


def _left(status: Mapping[str, Any]) -> dict[str, Any]:
    arena = status["arena"]
    left = {name: arena[name] for name in ("leased_bytes", "promises") if arena[name]}
    if status["sessions"]:
        left["sessions"] = status["sessions"]
    waiting = {tier["name"]: tier["waiting_chunks"] for tier in status["tiers"] if tier["waiting_chunks"]}
    return left | ({"waiting": waiting} if waiting else {})


def _judge_threads(report: Report) -> None:
    with urllib.request.urlopen(f"{report.status['http']}/periodic-threads", timeout=5) as answer:
        page = json.load(answer)
    dead = [one for one in page["threads"] if not one["is_running"]]
    if dead or not page["threads"]:
        report.problems.append(f"threads that do not run: {dead or 'all'}")


def _judge_samples(report: Report) -> None:
    """Memory and open files of the server do not grow; a restart begins anew, so there it is not judged."""
    first, last = report.spans()
    if report.plan.restarts or not first:
        return
    for name in ("rss_bytes", "anonymous_bytes"):
        before, after = _median(first, name), _median(last, name)
        allowed = _median(first, "rss_bytes") * report.plan.most_growth
        if after - before > allowed:
            report.problems.append(f"{name} grew from {before / _MIB:.1f} to {after / _MIB:.1f} MiB")
    if _median(last, "files") > _median(first, "files") + report.plan.workers:
        report.problems.append(f"open files grew from {_median(first, 'files')} to {_median(last, 'files')}")


def _judge_coverage(report: Report) -> None:
    """A soak in which nothing was hit or evicted shows nothing."""
    for name in ("verified_chunks", "stored_chunks", "hits", "promises"):
        if not report.counts[name]:
            report.problems.append(f"nothing happened: {name} is 0")


def _read_log(report: Report, log: Path) -> None:
    text = log.read_text(errors="replace")
    if "Traceback" in text:
        report.problems.append("the server's log has a traceback: " + text[text.index("Traceback") :][:2000])


def _median(samples: list[Sample], name: str) -> float:
    return statistics.median(getattr(one, name) for one in samples) if samples else 0.0


def _mib(samples: list[Sample], name: str) -> str:
    return f"{_median(samples, name) / _MIB:.1f}"


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--restarts", action="store_true", help="restart the server too")
    options = parser.parse_args()
    seconds = options.minutes * 60
    plan = Plan(
        seconds=seconds,
        seed=options.seed,
        workers=options.workers,
        warm_up_s=min(120.0, seconds / 3),
        restarts=options.restarts,
        tell=lambda line: print(line, flush=True),
    )
    report = soak(plan)
    print("\n".join(report.lines()))
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())
