"""Rounds of mixed traffic with deaths and freezes, a rest after each: what the server has allocated then must not grow.

Run: ``python -m tests.soak.rest --rounds 8``. Ends with 1 when something was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.redis_server import RedisServer
from tests.soak.chaos import Chaos
from tests.soak.content import CHUNK_TOKENS, MODELS
from tests.soak.run import CONFIG, settle
from tests.soak.server_process import ServerProcess
from tests.soak.staff import Staff

from lmcache_core import connect

_TICK_S = 0.1
_LOOKS = 5
_LOOK_GAP_S = 0.3
_KIB = 1 << 10
_REDIS = ("--maxmemory", "96mb", "--maxmemory-policy", "allkeys-lru")


@dataclass(frozen=True)
class Rounds:
    """How many, how long, by which seed, and what is allowed.

    Attributes:
        warm_up: Rounds after which threads, connections and tables are there; growth is judged from then on.
        most_growth_bytes: In all rounds after them together. A connection to the Redis takes 100 KiB, and from none
            to four are open at a rest, as freezes have ended some.
    """

    seed: int
    count: int = 8
    seconds: float = 15.0
    workers: int = 8
    warm_up: int = 4
    most_growth_bytes: int = 512 * _KIB
    tell: Callable[[str], None] = print


@dataclass
class Rests:
    """What was found at each rest.

    Attributes:
        allocated_bytes: By the server, Python's objects and all else.
        requests: Of the workers, in all rounds before.
        kills: Likewise, of workers.
    """

    allocated_bytes: list[int] = field(default_factory=list)
    requests: int = 0
    kills: int = 0
    problems: list[str] = field(default_factory=list)


def rest_and_compare(plan: Rounds) -> Rests:
    """Run, and judge."""
    rests = Rests()
    with tempfile.TemporaryDirectory(prefix="lmc-rest-") as name, RedisServer(options=_REDIS) as redis:
        config = CONFIG.format(chunk_tokens=CHUNK_TOKENS, folder=name, redis=redis.url)
        rng = random.Random(plan.seed)
        with ServerProcess(config, Path(name), keeps_ledger=True) as server:
            for number in range(plan.count):
                folder = Path(name) / f"round-{number}"
                folder.mkdir()
                with Staff(folder, server.address, rng.randrange(2**32)) as staff:
                    _drive(plan, rests, staff, Chaos(staff, redis, server, rng, restarts=False))
                rests.allocated_bytes.append(_rest(rests, server))
                plan.tell(
                    f"rest {number}: {rests.requests} requests, {rests.kills} workers killed, "
                    f"{rests.allocated_bytes[-1] / _KIB:.0f} KiB allocated"
                )
    rests.problems += judge(rests.allocated_bytes, warm_up=plan.warm_up, most_growth_bytes=plan.most_growth_bytes)
    return rests


def judge(allocated_bytes: Sequence[int], *, warm_up: int, most_growth_bytes: int) -> list[str]:
    """Give a sentence when more was allocated at the last rest than at the end of the warm-up."""
    first, last = allocated_bytes[warm_up - 1], allocated_bytes[-1]
    if last - first <= most_growth_bytes:
        return []
    problem = (
        f"at rest the server had allocated {first / _KIB:.0f} KiB after {warm_up} rounds, and after "
        f"{len(allocated_bytes)} it is {last / _KIB:.0f} KiB: it may grow by {most_growth_bytes / _KIB:.0f}"
    )
    return [problem]


def _drive(plan: Rounds, rests: Rests, staff: Staff, chaos: Chaos) -> None:
    """Traffic and trouble for a round, until the last worker has ended."""
    for number in range(plan.workers):
        staff.hire(number)
    staff.wait_for(plan.workers)
    started_s = time.monotonic()
    while (now_s := time.monotonic() - started_s) < plan.seconds:
        chaos.act(now_s)
        time.sleep(_TICK_S)
    chaos.end()
    staff.dismiss()
    rests.kills += chaos.counts["kills"]
    for figures in staff.figures():
        rests.requests += figures["counts"].get("requests", 0)
        if figures["wrong"]:
            rests.problems.append(f"worker {figures['number']}: {figures['wrong']}")


def _rest(rests: Rests, server: ServerProcess) -> int:
    """Clear, and give what is allocated when nothing is under way: the least of a few looks."""
    _, left = settle(server)
    if left:
        rests.problems.append(f"left long after the last worker: {left}")
    model = MODELS[0]
    with connect(environ={}, address=server.address, layout=model.layout, model_name=model.name) as cache:
        cache.clear()
    looks = []
    for _ in range(_LOOKS):
        time.sleep(_LOOK_GAP_S)
        looks.append(server.allocated_bytes())
    return min(looks)


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15.0, help="of traffic in each")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    plan = Rounds(
        seed=options.seed,
        count=options.rounds,
        seconds=options.seconds,
        warm_up=(options.rounds + 1) // 2,
        tell=lambda line: print(line, flush=True),
    )
    rests = rest_and_compare(plan)
    print("\n".join([f"seed {plan.seed}", *(f"WRONG     {problem}" for problem in rests.problems)]))
    return int(bool(rests.problems))


if __name__ == "__main__":
    sys.exit(main())
