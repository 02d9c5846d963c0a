"""A vLLM engine in a process of its own, and the fleet of them that the tests use one after another."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

_START_S = 500.0
_ANSWER_S = 300.0
_STOP_S = 30.0

CONNECTOR = {
    "kv_connector": "LMCoreConnector",
    "kv_connector_module_path": "lmcache_plugins.vllm.connector",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}


@dataclass(frozen=True)
class Answer:
    """One prompt's."""

    tokens: list[int]
    prompt_tokens: int
    cached_tokens: int
    finish_reason: str


@dataclass
class Settings:
    """What distinguishes one engine from the others.

    Attributes:
        extra: ``kv_connector_extra_config``; None for no connector.
        vllm: Further arguments of vLLM's.
        transfer: Further keys of ``kv_transfer_config``.
    """

    extra: dict[str, Any] | None = None
    vllm: dict[str, Any] = field(default_factory=dict)
    transfer: dict[str, Any] = field(default_factory=dict)


class Engine:
    """One engine. Starts with the object; `ask` waits until it is ready.

    Args:
        name: For its log's file.
        model: Folder of the model.
        settings: Its own.
        logs: Folder of logs.
    """

    def __init__(self, name: str, model: Path, settings: Settings, logs: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lmv-")  # a socket's path is short
        address = f"{self._folder.name}/s"
        self._listener = Listener(address, "AF_UNIX")
        self.log = logs / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.engines.engine_main", address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=engine_environ(),
            )
        self._arguments = {
            "model": str(model),
            "dtype": "float32",
            "max_model_len": 1024,
            "enforce_eager": True,
            "block_size": 32,
            "enable_prefix_caching": False,
            "disable_log_stats": False,
            "distributed_executor_backend": "uni",
            **settings.vllm,
            "transfer": None
            if settings.extra is None
            else {**CONNECTOR, **settings.transfer, "kv_connector_extra_config": settings.extra},
        }
        self._line: Connection | None = None
        self._dead = threading.Event()

    def ask(self, name: str, **options: Any) -> Any:
        """Call a function inside the engine, ``module:function`` or one of `tests.engines.inside`; wait for it."""
        self.begin(name, **options)
        return self.end()

    def begin(self, name: str, **options: Any) -> None:
        """Call a function without waiting for what it gives; see `end`."""
        full = name if ":" in name else f"tests.engines.inside:{name}"
        self._connected().send((full, options))

    def end(self) -> Any:
        """Wait for what the function that was called gives."""
        return self._receive(_ANSWER_S)

    def answer(self, prompts: Sequence[str], tokens: int = 6, salt: str | None = None) -> list[Answer]:
        """Answer prompts together at temperature 0."""
        self.begin_answers(prompts, tokens, salt)
        return self.answers()

    def begin_answers(self, prompts: Sequence[str], tokens: int = 6, salt: str | None = None) -> None:
        """Have prompts answered; see `answers`."""
        self.begin("tests.engines.engine_main:answer", prompts=list(prompts), tokens=tokens, salt=salt)

    def answers(self) -> list[Answer]:
        """Wait for the answers."""
        return [Answer(**answer) for answer in self.end()]

    def stop(self) -> None:
        """End it as its user would, and wait; nothing where it has ended."""
        if self._process.poll() is not None:
            return
        if self._line is not None:
            self._line.send(None)
            self._line.close()
        else:
            self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)
        self._listener.close()
        self._folder.cleanup()

    def _connected(self) -> Connection:
        if self._line is None:
            watch = threading.Thread(target=self._unblock_accept, daemon=True)
            watch.start()
            self._line = self._listener.accept()
            self._line.send(self._arguments)
            self._receive(_START_S)
        return self._line

    def _unblock_accept(self) -> None:
        self._process.wait()  # an engine that dies before it connects: the accept below it must end
        if self._line is None:
            self._listener.close()

    def _receive(self, timeout_s: float) -> Any:
        assert self._line is not None
        if not self._line.poll(timeout_s):
            raise AssertionError(f"the engine gave no answer in {timeout_s} s\n{self._tail()}")
        try:
            kind, value = self._line.recv()
        except (EOFError, ConnectionResetError) as error:
            raise AssertionError(f"the engine died\n{self._tail()}") from error
        assert kind in ("ready", "done"), value
        return value

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class Fleet:
    """Engines by name. While one is used, the next one starts: that takes a core for half a minute.

    Args:
        model: Folder of the model.
        plans: Settings in the order of use.
        logs: Folder of logs.
    """

    def __init__(self, model: Path, plans: Mapping[str, Settings], logs: Path) -> None:
        self._model, self._plans, self._logs = model, plans, logs
        self._running: dict[str, Engine] = {}

    def take(self, name: str) -> Engine:
        """Give an engine; the caller stops it."""
        engine = self._start(name)
        following = list(self._plans)[list(self._plans).index(name) + 1 :]
        if following:
            self._start(following[0])
        return self._running.pop(name) if engine else engine

    def stop(self) -> None:
        """End those that nobody took."""
        while self._running:
            self._running.popitem()[1].stop()

    def _start(self, name: str) -> Engine:
        if name not in self._running:
            self._running[name] = Engine(name, self._model, self._plans[name], self._logs)
        return self._running[name]


def engine_environ(**added: str) -> dict[str, str]:
    """The environment without the user's settings of vLLM and the cache; one thread, as two engines may run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LMCACHE_", "VLLM_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]), **added}
