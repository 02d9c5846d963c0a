"""A vLLM engine in a process of its own, and the fleet of them that the tests use one after another."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.engines.environment import FOREIGN

_START_S = 500.0
_ANSWER_S = 300.0
_STOP_S = 30.0

CONNECTOR = {
    "kv_connector": "LMCoreConnector",
    "kv_connector_module_path": "lmcache_plugins.vllm.connector",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}

ARGUMENTS = {
    "dtype": "float32",
    "max_model_len": 1024,
    "enforce_eager": True,
    "block_size": 32,
    "enable_prefix_caching": False,
    "disable_log_stats": False,
    "distributed_executor_backend": "uni",
}
"""vLLM's, of every engine that does not say otherwise."""

_MAIN = "tests.engines.engine_main"

CONTEXT = multiprocessing.get_context("forkserver")
"""Engines are copies of a process that has imported vLLM, which takes longer than the start of an engine."""

CONTEXT.set_forkserver_preload([_MAIN])


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
        model: Which of the models; ``smol`` answers in English, ``tiny``, ``windows``, a hybrid one, and
            ``latent``, with MLA, at once.
        extra: ``kv_connector_extra_config``; None for no connector.
        vllm: Further arguments of vLLM's.
        transfer: Further keys of ``kv_transfer_config``.
    """

    extra: dict[str, Any] | None = None
    model: str = "smol"
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
        self.log = logs / f"{name}.log"
        self.log.touch()
        self._line, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_run, args=(theirs, str(self.log)), name=name)
        self._process.start()
        theirs.close()  # so that the line ends with the process
        self._ready = False
        transfer = None
        if settings.extra is not None:
            transfer = {**CONNECTOR, **settings.transfer, "kv_connector_extra_config": settings.extra}
        self._line.send({**ARGUMENTS, "model": str(model), **settings.vllm, "transfer": transfer})

    def ask(self, name: str, **options: Any) -> Any:
        """Call a function inside the engine, ``module:function`` or one of `tests.engines.inside`; wait for it."""
        full = name if ":" in name else f"tests.engines.inside:{name}"
        self._connected().send((full, options))
        return self._receive(_ANSWER_S)

    def answer(
        self,
        prompts: Sequence[str | list[int]],
        tokens: int = 6,
        *,
        salt: str | None = None,
        adapter: tuple[str, str] | None = None,
    ) -> list[Answer]:
        """Answer prompts together at temperature 0.

        Args:
            prompts: Texts, or numbers of tokens.
            tokens: How many to generate for each.
            salt: The tenant's.
            adapter: Name and folder of a LoRA adapter.
        """
        options = {"prompts": list(prompts), "tokens": tokens, "salt": salt, "adapter": adapter}
        return [Answer(**answer) for answer in self.ask(f"{_MAIN}:answer", **options)]

    def stop(self) -> None:
        """End it as its user would, and wait; nothing where it has ended."""
        if self._process.exitcode is not None:
            return
        with contextlib.suppress(OSError):
            self._line.send(None)
        self._line.close()
        self._process.join(_STOP_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(_STOP_S)

    def _connected(self) -> Connection:
        if not self._ready:
            self._receive(_START_S)
            self._ready = True
        return self._line

    def _receive(self, timeout_s: float) -> Any:
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


def _run(line: Connection, log: str) -> None:
    """Be an engine; in its process."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.close(out)
    try:
        importlib.import_module(_MAIN).main(line)
    finally:
        atexit._run_exitfuncs()  # as at the end of any other process; multiprocessing leaves them out


class Fleet:
    """Engines by name. While one is used, the next one starts: that takes a core for some seconds.

    Args:
        models: Folders of the models, by the names that the settings use.
        plans: Settings in the order of use.
        logs: Folder of logs.
    """

    def __init__(self, models: Mapping[str, Path], plans: Mapping[str, Settings], logs: Path) -> None:
        self._models, self._plans, self._logs = models, plans, logs
        self._running: dict[str, Engine] = {}

    def take(self, name: str) -> Engine:
        """Give an engine; the caller stops it."""
        engine = self._start(name)
        following = list(self._plans)[list(self._plans).index(name) + 1 :]
        if following:
            self._start(following[0])
        del self._running[name]
        return engine

    def stop(self) -> None:
        """End those that nobody took."""
        while self._running:
            self._running.popitem()[1].stop()

    def _start(self, name: str) -> Engine:
        if name not in self._running:
            settings = self._plans[name]
            self._running[name] = Engine(name, self._models[settings.model], settings, self._logs)
        return self._running[name]


def engine_environ(**added: str) -> dict[str, str]:
    """The environment without the user's settings of vLLM and the cache; one thread, as two engines may run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]), **added}
