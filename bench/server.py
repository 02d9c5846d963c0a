"""A cache server against its two yardsticks: a bare ZeroMQ echo, and the engine inside the process.

Real processes. Every figure is a ratio within one run, of pairs side by side. Ends with 1 where an aim is missed.
Run: ``make bench`` or ``python bench/server.py``.
"""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))  # the real server of the tests

import numpy as np
import torch
from bench.parts.echo import Echo
from tests.soak.server_process import ServerProcess

from lmcache_core import CacheClient, CacheManager, KVLayout, connect
from lmcache_core.access.format import ChunkFormat
from lmcache_core.contracts.cache import KVCache
from lmcache_core.tokens.hashing import token_array
from lmcache_core.wire.codec import Encoder
from lmcache_core.wire.messages import Lookup, Ping

CHUNK_TOKENS = 256
LOOKUP_CHUNKS = 128
BLOCKS = 40
CALLS = 50
"""In a block; calls of ours and of the yardstick alternate."""

ROUNDS = 31
MOST_ECHOES_OF_A_PING = 1.5
MOST_ECHOES_OF_A_LOOKUP = 2.5
LEAST_OF_THE_ENGINE = 0.85
CONFIG = "max_local_cpu_size = {gib}\nblocking_timeout_secs = 30.0\n"
TINY = KVLayout(num_layers=1, num_kv_heads=1, head_size=1, dtype="float16")


@dataclass(frozen=True)
class Shape:
    """A model, and how many of its chunks one call moves."""

    title: str
    layout: KVLayout
    chunks: int


SHAPES = (
    Shape("Llama-3-8B, 32 MiB", KVLayout(num_layers=32, num_kv_heads=8, head_size=128, dtype="bfloat16"), 8),
    Shape("SmolLM2, 5.6 MiB", KVLayout(num_layers=30, num_kv_heads=3, head_size=64, dtype="bfloat16"), 32),
)


@dataclass(frozen=True)
class Verdict:
    """One figure and its aim."""

    title: str
    figure: float
    aim: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """Whether the aim is met."""
        return self.figure >= self.aim if self.at_least else self.figure <= self.aim

    def line(self) -> str:
        """For the table at the end."""
        sign = "at least" if self.at_least else "at most"
        return f"{self.title:<52} {self.figure:6.2f}   {sign} {self.aim:.2f}   {'holds' if self.holds else 'MISSED'}"


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(
    title: str, bare: Callable[[], object], ours: Callable[[], object], after: Callable[[], object] = lambda: None
) -> float:
    """Alternate calls; give the median, over blocks of them, of the ratio of their medians."""
    bare_us: list[float] = []
    ours_us: list[float] = []
    for block in range(BLOCKS + 1):
        bare_s: list[float] = []
        ours_s: list[float] = []
        for _ in range(CALLS):
            bare_s.append(timed(bare))
            ours_s.append(timed(ours))
            after()
        if block:  # the first warms up
            bare_us.append(statistics.median(bare_s) * 1e6)
            ours_us.append(statistics.median(ours_s) * 1e6)
    ratio = statistics.median(a / b for a, b in zip(ours_us, bare_us, strict=True))
    print(
        f"{title:<52} {statistics.median(ours_us):7.1f} us   echo {statistics.median(bare_us):7.1f} us   "
        f"ratio {ratio:5.2f}",
        flush=True,
    )
    return ratio


def bench_control(echo: Echo, address: str) -> list[Verdict]:
    """Ping, and the lookup of a resident prefix."""
    tokens = np.arange(LOOKUP_CHUNKS * CHUNK_TOKENS, dtype=np.int32)
    with connect(environ={}, address=address, layout=TINY, model_name="tiny") as client:
        link = client._remote.link  # noqa: SLF001 - a ping has no public name
        session = link.session
        assert session is not None, client.reason

        def ping() -> None:
            call = link.next_call()
            session.pool.call(Ping(call, session.number), call, time.monotonic() + 5)

        frame = Encoder().encode(Ping(1_000_000, session.number))
        pings = compare(f"ping, {len(frame)} bytes", lambda: echo.call(frame), ping)
        stored = client.store(tokens, torch.zeros(TINY.kv_shape(len(tokens)), dtype=torch.float16))
        assert stored == len(tokens), client.reason
        lookups = bench_lookups(echo, client, tokens, session.number)
    return [
        Verdict("ping / echo", pings, MOST_ECHOES_OF_A_PING, at_least=False),
        Verdict(f"lookup of {LOOKUP_CHUNKS} chunks / echo", lookups, MOST_ECHOES_OF_A_LOOKUP, at_least=False),
    ]


def bench_lookups(echo: Echo, client: CacheClient, tokens: np.ndarray, session: int) -> float:
    """A lookup of digests, and of tokens."""
    form = ChunkFormat.of(TINY, model_name="tiny", world_size=1, ranks=(0,), chunk_tokens=CHUNK_TOKENS)
    assert client.chunk_tokens == form.chunk_tokens
    access = client._remote  # noqa: SLF001 - digests have no public way in
    runs = access.format.runs(token_array(tokens), "", "") if access.format is not None else []
    names, digests = runs[0].namespace, b"".join(runs[0].digests)
    frame = Encoder().encode(
        Lookup(1_000_000, session, 1, names.salt_hash, names.variant_hash, "r", (digests,), len(tokens), False, 9.0)
    )

    def lookup() -> None:
        found = access.lookup(runs, "r", requested_tokens=len(tokens), deadline=time.monotonic() + 5)
        assert found.chunks == LOOKUP_CHUNKS, found

    def lookup_tokens() -> None:
        assert client.lookup(tokens, request_id="r") == len(tokens)

    def release() -> None:
        access.release(runs, "r")

    ratio = compare(f"lookup of digests, {len(frame)} bytes", lambda: echo.call(frame), lookup, release)
    compare("lookup of tokens, hashing included", lambda: echo.call(frame), lookup_tokens, release)
    compare("release", lambda: echo.call(frame), release)
    return ratio


def bench_copies(shape: Shape, address: str, gib: float) -> list[Verdict]:
    """Store and retrieve through the server and inside the process, in turns."""
    tokens = np.arange(shape.chunks * CHUNK_TOKENS, dtype=np.int32)
    kv = torch.empty(shape.layout.kv_shape(len(tokens)), dtype=torch.bfloat16).fill_(1.5)
    out = torch.zeros_like(kv)
    moved_bytes = kv.numel() * 2
    overrides = {"max_local_cpu_size": gib}

    def both(cache: KVCache) -> tuple[float, float]:
        store_s = timed(lambda: check(cache.store(tokens, kv), len(tokens)))
        out.zero_()
        retrieve_s = timed(lambda: check(int(cache.retrieve(tokens, out).sum()), len(tokens)))
        assert torch.equal(out, kv)
        cache.clear()
        return store_s, retrieve_s

    rows = []
    made = CacheManager.from_config(overrides=overrides, environ={}, layout=shape.layout, model_name="bench")
    with made as manager, connect(environ={}, address=address, layout=shape.layout, model_name="bench") as client:
        for turn in range(ROUNDS + 2):
            pair = (both(client), both(manager.engine)) if turn % 2 else (both(manager.engine), both(client))[::-1]
            if turn > 1:  # the first touch of every page, on both sides
                rows.append((*pair[0], *pair[1]))
    verdicts = []
    for place, name in enumerate(("store", "retrieve")):
        ours = statistics.median(moved_bytes / row[place] for row in rows) / 1e9
        engine = statistics.median(moved_bytes / row[place + 2] for row in rows) / 1e9
        ratio = statistics.median(row[place + 2] / row[place] for row in rows)
        title = f"{name}, {shape.title} a chunk"
        print(f"{title:<52} {ours:6.2f} GB/s   engine {engine:6.2f} GB/s   ratio {ratio:5.2f}", flush=True)
        verdicts.append(Verdict(f"{title} / engine", ratio, LEAST_OF_THE_ENGINE, at_least=True))
    return verdicts


def check(tokens: int, wanted: int) -> None:
    """Stop a bench that measures something else."""
    if tokens != wanted:
        raise SystemExit(f"{tokens} of {wanted} tokens were moved")


class Crew:
    """Several worker processes that do the same at once."""

    def __init__(self, address: str, workers: int, chunks: int) -> None:
        script = str(Path(__file__).parent / "parts" / "server_worker.py")
        self._processes = [
            subprocess.Popen(
                [sys.executable, script, address, str(chunks), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(workers)
        ]
        self._answers()

    def do(self, word: str) -> None:
        """Tell all, and wait for all."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
        if any(answer.strip() != "1" for answer in self._answers()):
            raise SystemExit(f"a worker could not {word}")

    def end(self) -> None:
        """Let them end; each has compared what it got with what it gave."""
        for process in self._processes:
            process.communicate()
            if process.returncode:
                raise SystemExit(f"a worker ended with {process.returncode}")

    def _answers(self) -> list[str]:
        return [process.stdout.readline() for process in self._processes if process.stdout is not None]


def bench_crew(address: str, workers: int, chunks: int) -> None:
    """GB/s of all workers together."""
    shape = SHAPES[0]
    moved_bytes = workers * chunks * CHUNK_TOKENS * shape.layout.bytes_per_token
    crew = Crew(address, workers, chunks)
    times: dict[str, list[float]] = {"store": [], "retrieve": []}
    with connect(environ={}, address=address, layout=shape.layout, model_name="bench") as client:
        for _ in range(ROUNDS // 4):
            for word, spent in times.items():
                spent.append(timed(partial(crew.do, word)))
            client.clear()
        crew.do("store")
        crew.do("retrieve")
        client.clear()
    crew.end()
    speeds = {word: moved_bytes / statistics.median(spent[1:]) / 1e9 for word, spent in times.items()}
    print(
        f"{f'{workers} workers at once, {shape.title} a chunk':<52} "
        f"store {speeds['store']:6.2f} GB/s   retrieve {speeds['retrieve']:6.2f} GB/s in all",
        flush=True,
    )


def main() -> int:
    """Print the tables; 1 where an aim is missed."""
    torch.set_num_threads(1)
    gib = 0.75
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="lmc-") as name, ServerProcess(CONFIG.format(gib=gib)) as server:
        with Echo(Path(name)) as echo:
            verdicts += bench_control(echo, server.address)
        for shape in SHAPES:
            verdicts += bench_copies(shape, server.address, gib)
        for workers in (1, 2, 4):
            bench_crew(server.address, workers, chunks=4)
    print()
    for verdict in verdicts:
        print(verdict.line())
    return int(not all(verdict.holds for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
