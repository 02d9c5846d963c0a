"""A store that could not be built fails every call with the reason."""

import time

import pytest

from lmcache_core import BackendError, ChunkKey, KeyNamespace
from lmcache_core.storage.unbuilt import UnbuiltStore

KEY = ChunkKey(
    KeyNamespace(model_name="m", world_size=1, rank=0, dtype="bytes", layout="x", chunk_tokens=1, payload_bytes=100),
    bytes(32),
)
FRAME = memoryview(bytearray(164))
CALLS = {
    "contains": lambda store, deadline: store.contains([KEY], deadline=deadline),
    "load_into": lambda store, deadline: store.load_into([KEY], [FRAME], deadline=deadline),
    "store": lambda store, deadline: store.store([(KEY, FRAME)], deadline=deadline),
    "delete": lambda store, deadline: store.delete([KEY], deadline=deadline),
    "ping": lambda store, deadline: store.ping(deadline=deadline),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_why(call: str) -> None:
    with pytest.raises(BackendError, match="no licence"):
        CALLS[call](UnbuiltStore("no licence"), time.monotonic() + 1)


def test_it_closes() -> None:
    store = UnbuiltStore("no licence")
    store.close()

    assert (store.usage().bytes_used, store.notices(), store.evicted_chunks()) == (-1, (), 0)
