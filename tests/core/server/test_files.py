"""A process that serves lives on when it may open no more files, lets clients in as long as it can, and says why not."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.served import socket_path
from tests.core.server.talker import Talker

from lmcache_core.errors import ConfigError
from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.endpoint import Endpoint
from lmcache_core.server.spare import MOST_SPARE
from lmcache_core.wire.address import parse_address

ENGINE = """
    import json, logging, os, resource, sys
    from lmcache_core import CacheManager, KVLayout, listen

    logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(message)s")
    layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
    keys = {"chunk_size": 4, "max_local_cpu_size": 0.01}
    with CacheManager.from_config(overrides=keys, environ={}, layout=layout, model_name="m") as manager:
        server = listen(manager, sys.argv[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        files = []
        print(server.address, flush=True)
        for word in sys.stdin:
            if word == "fill\\n":
                try:
                    while True:
                        files.append(os.dup(0))
                except OSError:
                    pass
            elif word == "free\\n":
                while files:
                    os.close(files.pop())
            print(json.dumps(server.status()["connections"]), flush=True)
        server.stop()
    print("ended", flush=True)
"""


class Engine:
    """An inference engine that answers lookups, in a process that may open 256 files."""

    def __init__(self, address: str, folder: Path) -> None:
        self.log = folder / "engine.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(ENGINE), address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.address = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> dict[str, Any]:
        """Fill or free its files, or nothing; give how its connections fare. Fails once it is dead."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        line = self._line()
        assert line, f"the engine ended with {self.process.wait(10)}: {self.log.read_text()[-2000:]}"
        told: dict[str, Any] = json.loads(line)
        return told

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end_s = time.monotonic() + 60
        while not true(told := self.tell("look")) and time.monotonic() < end_s:
            time.sleep(0.05)
        return told


@pytest.fixture
def where(folder: Path) -> str:
    return socket_path(folder)


@pytest.fixture
def engine(where: str, folder: Path) -> Iterator[Engine]:
    engine = Engine(where, folder)
    yield engine
    engine.process.kill()
    engine.process.communicate()


@pytest.fixture
def come(engine: Engine, context: zmq.Context[Any]) -> Iterator[Callable[[], Talker]]:
    """Connect one more client, which says nothing yet."""
    made: list[Talker] = []

    def connect() -> Talker:
        made.append(Talker(engine.address, context))
        return made[-1]

    yield connect
    for talker in made:
        talker.close()


def test_clients_come_in_while_the_reserve_lasts(engine: Engine, come: Callable[[], Talker]) -> None:
    engine.tell("fill")
    for _ in range(4):
        come().hello()

    told = engine.until(lambda told: bool(told["reason"]))

    assert (told["open"], told["spare"], told["turned_away"]) == (4, MOST_SPARE - 4, 0)
    assert told["reason"] == (
        f"the process that serves at {engine.address} may open no more files, of which it is allowed 256: "
        f"{MOST_SPARE - 4} of {MOST_SPARE} spare ones are left; "
        "raise the limit (LimitNOFILE, ulimit -n) or see what else in the process holds files"
    )


def test_an_engine_out_of_files_lives_on_says_why_and_recovers(engine: Engine, come: Callable[[], Talker]) -> None:
    old = come()
    old.hello()
    engine.tell("fill")
    crowd = [come() for _ in range(MOST_SPARE + 8)]
    told = engine.until(lambda told: bool(told["turned_away"]))

    assert (told["open"], told["spare"]) == (1 + MOST_SPARE, 0)
    assert "new clients wait (Too many open files)" in told["reason"]
    assert old.ping().healthy

    engine.tell("free")
    for talker in crowd:
        talker.hello()
    told = engine.until(lambda told: not told["reason"])
    assert (told["open"], told["spare"], told["reason"]) == (1 + len(crowd), MOST_SPARE, "")
    assert "new clients wait (Too many open files)" in engine.log.read_text()


def test_it_ends_in_order_although_it_is_out_of_files(engine: Engine) -> None:
    engine.tell("fill")
    out, _ = engine.process.communicate(timeout=30)

    assert (engine.process.returncode, out) == (0, "ended\n")


def test_an_engine_out_of_files_gets_a_sentence_where_it_would_listen(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    address = socket_path(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ConfigError) as caught:
            Endpoint(parse_address(address), ServerTally())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert str(caught.value) == f"server_address: {address}: {folder}: Too many open files"


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:0"])
def test_it_lives_on_behind_a_port_too(engine: Engine, come: Callable[[], Talker]) -> None:
    engine.tell("fill")
    crowd = [come() for _ in range(MOST_SPARE + 1)]
    assert engine.until(lambda told: bool(told["turned_away"]))["open"] == MOST_SPARE

    engine.tell("free")
    assert crowd[-1].hello().session


def test_connections_are_at_most_half_of_the_files(engine: Engine, come: Callable[[], Talker]) -> None:
    crowd = [come() for _ in range(140)]
    told = engine.until(lambda told: told["open"] == 128)

    assert told["open"] == 128
    for talker in crowd[:64]:
        talker.close()
    assert engine.until(lambda told: told["open"] < 128)["open"] < 128
