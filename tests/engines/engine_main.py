"""A vLLM engine as a process of its own: does what the test at the other end of a socket says.

``python -m tests.engines.engine_main SOCKET``; the first message has the engine's arguments.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from multiprocessing.connection import Client
from typing import Any

os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
)


def main(socket: str) -> None:
    with Client(socket, "AF_UNIX") as line:
        arguments = line.recv()
        # vLLM first: its worker cannot start once numba has been imported.
        from vllm import LLM
        from vllm.config import KVTransferConfig

        transfer = arguments.pop("transfer")
        if transfer is not None:
            arguments["kv_transfer_config"] = KVTransferConfig(**transfer)
        llm = LLM(**arguments)
        line.send(("ready", None))
        while (message := line.recv()) is not None:
            name, options = message
            module, _, function = name.partition(":")
            try:
                line.send(("done", getattr(importlib.import_module(module), function)(llm, **options)))
            except Exception:
                line.send(("failed", traceback.format_exc()))


def answer(llm: Any, *, prompts: list[str], tokens: int, salt: str | None = None) -> list[dict[str, Any]]:
    """Answer prompts together at temperature 0."""
    from vllm import SamplingParams

    asked: list[Any] = [{"prompt": prompt, **({"cache_salt": salt} if salt else {})} for prompt in prompts]
    outputs = llm.generate(asked, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)
    return [
        {
            "tokens": list(output.outputs[0].token_ids),
            "prompt_tokens": len(output.prompt_token_ids),
            "cached_tokens": output.num_cached_tokens,
            "finish_reason": output.outputs[0].finish_reason,
        }
        for output in outputs
    ]


if __name__ == "__main__":
    main(sys.argv[1])
