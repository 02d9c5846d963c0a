"""vLLM's OpenAI server as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from tests.engines.engine import CONNECTOR, engine_environ
from tests.redis_server import free_port

_START_S = 300.0
_STOP_S = 40.0


class OpenAIServer:
    """Starts with the object; a context manager that waits until it serves.

    Args:
        model: Folder of the model.
        extra: ``kv_connector_extra_config``.
        log: File for its log.
    """

    def __init__(self, model: Path, extra: dict[str, Any], log: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        words = ["--model", str(model), "--served-model-name", "smol", "--port", str(port), "--host", "127.0.0.1"]
        words += ["--dtype", "float32", "--max-model-len", "1024", "--enforce-eager", "--block-size", "32"]
        words += ["--no-enable-prefix-caching", "--distributed-executor-backend", "uni", "--generation-config", "vllm"]
        transfer = {**CONNECTOR, "kv_connector_extra_config": extra}
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
                    *words,
                    *("--kv-transfer-config", json.dumps(transfer)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=engine_environ(
                    HF_HUB_OFFLINE="1",
                    VLLM_CPU_KVCACHE_SPACE="1",
                    VLLM_CPU_OMP_THREADS_BIND="nobind",
                    VLLM_NO_USAGE_STATS="1",
                    DO_NOT_TRACK="1",
                ),
            )

    def __enter__(self) -> OpenAIServer:
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait(self) -> None:
        end = time.monotonic() + _START_S
        while not self._answers():
            text = self.log.read_text(errors="replace")[-4000:]
            assert self._process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)

    def stream(self, prompt: str, tokens: int) -> list[str]:
        """Ask for a completion; give the pieces of text as they stream in."""
        body = {"model": "smol", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
        pieces = []
        with httpx.stream(
            "POST", f"{self.url}/v1/completions", json={**body, "ignore_eos": True}, timeout=200.0
        ) as answer:
            assert answer.status_code == httpx.codes.OK, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    piece = json.loads(line.removeprefix("data: "))
                    assert "error" not in piece, piece
                    pieces += [choice["text"] for choice in piece["choices"]]
        return pieces

    def metrics(self) -> dict[str, float]:
        """Its counters and gauges, by name; those of its labels are added up."""
        found: dict[str, float] = {}
        for line in httpx.get(f"{self.url}/metrics", timeout=30.0).text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                found[name] = found.get(name, 0) + float(value)
        return found

    def health(self) -> int:
        """The status of its own ``/health``."""
        return httpx.get(f"{self.url}/health", timeout=5.0).status_code

    def _answers(self) -> bool:
        try:
            return self.health() == httpx.codes.OK
        except httpx.HTTPError:
            return False
