"""The environment of an engine's process; set when this is imported there, before torch and vLLM are."""

from __future__ import annotations

import os

FOREIGN = ("LMCACHE_", "VLLM_")
"""How the names of the user's own settings begin."""

SETTINGS = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
"""One thread, as two engines may run; functions may be sent to workers."""


def settle() -> None:
    """Make the environment of this process an engine's."""
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ.update(SETTINGS)
