"""One vLLM engine of ``bench/ttft.py``, run with the Python of an environment that has vLLM.

The first argument is a JSON object: ``model``, ``block_tokens``, ``blocks`` and ``transfer``, which is vLLM's KV
transfer configuration or null. Then each line of standard input is a request, and each line of the original standard
output an answer. ``{"encode": text}`` gives ``{"tokens": [...]}``; ``{"prompt": [...], "limit": n}`` gives
``{"first_token_s": s, "hooks_s": s, "cpu_s": s, "cached_tokens": n, "tokens": [...]}``.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Serve requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes to the standard output
    job = json.loads(sys.argv[1])
    engine = open_engine(job)
    hooks = HookClock()
    if job["transfer"] is not None:
        hooks.watch_connector()
    tokenizer = engine.get_tokenizer()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "encode" in request:
            answer: dict[str, Any] = {"tokens": tokenizer.encode(request["encode"])}
        else:
            answer = generate(engine, hooks, request["prompt"], request["limit"])
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # vLLM and what it loads do not always end by themselves


def open_engine(job: dict[str, Any]) -> Any:
    """One process, so that nothing but the engine and its connector is measured."""
    from vllm import LLM
    from vllm.config import KVTransferConfig
    from vllm.triton_utils import dispatcher

    # vLLM 0.32 looks through all modules at start and dies on llvmlite's, which LMCache brings along.
    dispatcher.vars = plain_vars
    transfer = job["transfer"]
    return LLM(
        job["model"],
        dtype="float32",
        max_model_len=4096,
        enforce_eager=True,
        block_size=job["block_tokens"],
        num_gpu_blocks_override=job["blocks"],
        enable_prefix_caching=False,
        disable_log_stats=False,
        distributed_executor_backend="uni",
        kv_transfer_config=None if transfer is None else KVTransferConfig(**transfer),
    )


def plain_vars(value: Any) -> dict[str, Any]:
    """The builtin, but for objects whose ``__dict__`` is something else."""
    found = vars(value)
    return found if isinstance(found, dict) else {}


class HookClock:
    """Adds up the time that vLLM's thread spends in its connector, scheduler's and worker's side together."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._within = False

    def watch_connector(self) -> None:
        """Time each method that a connector has, its class's own and what it inherits."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        kind = type(get_kv_transfer_group())
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                setattr(kind, name, self._timed(method))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._within:  # one hook that calls another is counted once
                return method(*args, **kwargs)
            self._within = True
            begun = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.spent_s += time.perf_counter() - begun
                self._within = False

        return timed


def generate(engine: Any, hooks: HookClock, prompt: list[int], limit: int) -> dict[str, Any]:
    """Greedily, alone."""
    from vllm import SamplingParams

    hooks.spent_s = 0.0
    sampling = SamplingParams(temperature=0.0, max_tokens=limit, ignore_eos=True)
    cpu_s = time.process_time()
    (output,) = engine.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
    return {
        "cpu_s": time.process_time() - cpu_s,
        "first_token_s": output.metrics.first_token_latency,
        "hooks_s": hooks.spent_s,
        "cached_tokens": output.num_cached_tokens or 0,
        "tokens": list(output.outputs[0].token_ids),
    }


if __name__ == "__main__":
    main()
