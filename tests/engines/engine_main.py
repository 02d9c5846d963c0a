"""What an engine's process does: what the test at the other end of a line says.

Imported in the process that engines are copies of, so with all that an engine imports.
"""

from __future__ import annotations

import importlib
import multiprocessing
import traceback
import zlib
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from tests.engines import environment

environment.settle()

for _name in (
    # vLLM first: its worker cannot start once numba has been imported.
    "vllm.entrypoints.llm",
    "vllm.model_executor.models.llama",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "lmcache_plugins.vllm.connector",
):
    importlib.import_module(_name)

# Workers are copies too. vLLM for CPUs starts each anew, which takes a core for ten seconds; elsewhere it copies them.
importlib.import_module("vllm.v1.executor.multiproc_executor").get_mp_context = partial(
    multiprocessing.get_context, "fork"
)


def main(line: Connection) -> None:
    """Be an engine until the line ends."""
    from vllm import LLM
    from vllm.config import KVTransferConfig

    arguments = line.recv()
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


def answer(
    llm: Any, *, prompts: list[str | list[int]], tokens: int, salt: str | None, adapter: tuple[str, str] | None
) -> list[dict[str, Any]]:
    """Answer prompts together at temperature 0, with a LoRA adapter's name and folder or without one."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    further = {"cache_salt": salt} if salt else {}
    asked: list[Any] = [
        {"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt, **further} for prompt in prompts
    ]
    outputs = llm.generate(
        asked,
        SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True),
        use_tqdm=False,
        lora_request=LoRARequest(adapter[0], zlib.crc32(repr(adapter).encode()), adapter[1]) if adapter else None,
    )
    return [
        {
            "tokens": list(output.outputs[0].token_ids),
            "prompt_tokens": len(output.prompt_token_ids),
            "cached_tokens": output.num_cached_tokens,
            "finish_reason": output.outputs[0].finish_reason,
        }
        for output in outputs
    ]
