"""The engines that ``bench/ttft.py`` compares, and the servers that two of them need."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

_START_S = 240.0
_END_S = 30.0
_POLL_S = 0.2
BLOCK_TOKENS = 32
_BLOCKS = 160
"""Of vLLM's own cache: one prompt at a time, and several engines that must fit into memory together."""

_ENVIRON = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
_PEER_ENVIRON = {
    "LMCACHE_TRACK_USAGE": "false",
    "DO_NOT_TRACK": "1",
    "LMCACHE_DISABLE_BANNER": "1",
    "LMCACHE_LOG_LEVEL": "WARNING",
    "OTEL_SDK_DISABLED": "true",
}


class Engine:
    """A vLLM process; a context manager.

    Args:
        name: For people.
        python: Of an environment with vLLM.
        model: Folder of the model.
        transfer: vLLM's KV transfer configuration; None for vLLM alone.
        threads: That it computes with.
        log: Where it writes.
        peer: Whether LMCache is in it.
    """

    def __init__(
        self,
        name: str,
        python: str,
        model: str,
        transfer: Mapping[str, Any] | None,
        *,
        threads: int,
        log: Path,
        peer: bool = False,
    ) -> None:
        self.name = name
        self.peer = peer
        self._log = log
        job = {"model": model, "block_tokens": BLOCK_TOKENS, "blocks": _BLOCKS, "transfer": transfer}
        command = [python, str(Path(__file__).with_name("ttft_engine.py")), json.dumps(job)]
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("LMCACHE_", "PYTHON"))}
        environ |= _ENVIRON | (_PEER_ENVIRON if peer else {})
        with log.open("wb") as target:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=target,
                text=True,
                env=environ | {"OMP_NUM_THREADS": str(threads)},
            )
        self._read()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended: {self._log.read_text(errors='replace')[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


class PeerServer:
    """LMCache's own cache server; a context manager.

    Args:
        python: Of its environment.
        chunk_tokens: Of a chunk.
        shared_memory: Whether payload goes through shared memory and not through messages.
        gib: Of memory.
        log: Where it writes.
    """

    def __init__(self, python: str, *, chunk_tokens: int, shared_memory: bool, gib: float, log: Path) -> None:
        self.port, http_port = _free_port(), _free_port()
        # fmt: off
        command = [
            str(Path(python).with_name("lmcache")), "server", "--host", "127.0.0.1", "--port", str(self.port),
            "--http-host", "127.0.0.1", "--http-port", str(http_port), "--chunk-size", str(chunk_tokens),
            "--l1-size-gb", str(gib), "--eviction-policy", "LRU", "--disable-metrics", "--max-workers", "2",
            "--supported-transfer-mode", "engine_driven",
            *(("--shm-name", f"ttft-{os.getpid()}-{self.port}") if shared_memory else ()),
        ]
        # fmt: on
        self._log = log
        with log.open("wb") as target:
            self._process = subprocess.Popen(command, stdout=target, stderr=target, env=os.environ | _PEER_ENVIRON)
        end = time.monotonic() + _START_S
        while not (_is_open(self.port) and _is_open(http_port)):
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"LMCache's server did not start: {log.read_text(errors='replace')[-3000:]}")
            time.sleep(_POLL_S)

    def transfer(self) -> dict[str, Any]:
        """For vLLM."""
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port},
        }

    def __enter__(self) -> PeerServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)


def our_transfer(**options: Any) -> dict[str, Any]:
    """For vLLM: our connector, with keys of the configuration."""
    return {
        "kv_connector": "LMCoreConnector",
        "kv_connector_module_path": "lmcache_plugins.vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {f"lmcache.{name}": value for name, value in options.items()},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
