"""Contract of a store, as tests that its author inherits."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmcache_core.contracts.key import ChunkKey, KeyNamespace
from lmcache_core.contracts.storage import Frame, LoadResult, StorageBackend
from lmcache_core.errors import BackendTimeoutError

NAMESPACE = KeyNamespace(
    model_name="contract/model",
    world_size=1,
    rank=0,
    dtype="float32",
    layout="0123456789abcdef",
    chunk_tokens=256,
)
"""What the tests' keys belong to."""

_PATIENCE_S = 20.0
_PROMPT_S = 1.0
_THREADS = 8


def make_key(number: int) -> ChunkKey:
    """A key of its own for every number."""
    return ChunkKey(NAMESPACE, hashlib.sha256(f"contract {number}".encode()).digest())


def make_frame(number: int, length_bytes: int) -> Frame:
    """Bytes that no other number has, as a frame; read-only."""
    seed = hashlib.sha256(f"frame {number}".encode()).digest()
    return memoryview((seed * (length_bytes // len(seed) + 1))[:length_bytes])


def soon() -> float:
    """A deadline that a working store keeps."""
    return time.monotonic() + _PATIENCE_S


class StorageBackendContract:
    """Inherit, give a `backend` fixture with a new, empty store, and pytest checks the contract.

    Set `frame_bytes` to lengths that matter to the store, such as one on each side of a limit.

    Example:
        >>> class TestMyStore(StorageBackendContract):
        ...     @pytest.fixture
        ...     def backend(self, tmp_path: Path) -> Iterator[StorageBackend]:
        ...         backend = MyStore(tmp_path)
        ...         yield backend
        ...         backend.close()
    """

    frame_bytes: Sequence[int] = (1, 4096, 1_000_003, 3 * 1024 * 1024)

    def test_miss_leaves_the_buffer_untouched(self, backend: StorageBackend) -> None:
        out = bytearray(b"x" * 4096)

        assert backend.load_into([make_key(0)], [memoryview(out)], deadline=soon()) == [LoadResult.MISS]
        assert out == b"x" * 4096

    def test_what_is_stored_is_loaded(self, backend: StorageBackend) -> None:
        frames = [make_frame(number, length_bytes) for number, length_bytes in enumerate(self.frame_bytes)]
        keys = [make_key(number) for number in range(len(frames))]
        outs = [bytearray(len(frame)) for frame in frames]

        backend.store(list(zip(keys, frames, strict=True)), deadline=soon())
        results = backend.load_into(keys, [memoryview(out) for out in outs], deadline=soon())

        assert results == [LoadResult.HIT] * len(frames)
        assert [hashlib.sha256(out).digest() for out in outs] == [hashlib.sha256(frame).digest() for frame in frames]

    def test_a_load_fills_nothing_but_its_buffer(self, backend: StorageBackend) -> None:
        frame = make_frame(0, 70_000)
        arena = bytearray(b"x" * 100_000)
        backend.store([(make_key(0), frame)], deadline=soon())

        backend.load_into([make_key(0)], [memoryview(arena)[10_000:80_000]], deadline=soon())

        assert arena[:10_000] == b"x" * 10_000
        assert arena[10_000:80_000] == frame
        assert arena[80_000:] == b"x" * 20_000

    def test_hits_and_misses_of_one_load_keep_their_places(self, backend: StorageBackend) -> None:
        backend.store([(make_key(number), make_frame(number, 5000)) for number in (0, 2)], deadline=soon())
        outs = [bytearray(b"x" * 5000) for _ in range(4)]

        results = backend.load_into(
            [make_key(number) for number in range(4)], [memoryview(out) for out in outs], deadline=soon()
        )

        assert results == [LoadResult.HIT, LoadResult.MISS, LoadResult.HIT, LoadResult.MISS]
        assert [bytes(out) for out in outs] == [
            bytes(make_frame(0, 5000)),
            b"x" * 5000,
            bytes(make_frame(2, 5000)),
            b"x" * 5000,
        ]

    def test_contains_counts_the_leading_run(self, backend: StorageBackend) -> None:
        backend.store([(make_key(number), make_frame(number, 100)) for number in (0, 1, 3)], deadline=soon())

        assert backend.contains([make_key(number) for number in range(5)], deadline=soon()) == 2

    def test_contains_of_an_absent_first_key_is_zero(self, backend: StorageBackend) -> None:
        backend.store([(make_key(1), make_frame(1, 100))], deadline=soon())

        assert backend.contains([make_key(0), make_key(1)], deadline=soon()) == 0

    def test_contains_of_256_keys_counts_all(self, backend: StorageBackend) -> None:
        backend.store([(make_key(number), make_frame(number, 64)) for number in range(256)], deadline=soon())

        assert backend.contains([make_key(number) for number in range(256)], deadline=soon()) == 256

    def test_delete_counts_what_was_there(self, backend: StorageBackend) -> None:
        backend.store([(make_key(number), make_frame(number, 100)) for number in range(2)], deadline=soon())

        assert backend.delete([make_key(number) for number in range(4)], deadline=soon()) == 2
        assert backend.contains([make_key(0)], deadline=soon()) == 0

    def test_storing_twice_is_no_error(self, backend: StorageBackend) -> None:
        for _ in range(2):
            backend.store([(make_key(0), make_frame(0, 5000))], deadline=soon())

        assert backend.contains([make_key(0)], deadline=soon()) == 1

    def test_a_deleted_chunk_can_be_stored_again(self, backend: StorageBackend) -> None:
        backend.store([(make_key(0), make_frame(0, 5000))], deadline=soon())
        backend.delete([make_key(0)], deadline=soon())
        out = bytearray(5000)

        backend.store([(make_key(0), make_frame(1, 5000))], deadline=soon())

        assert backend.load_into([make_key(0)], [memoryview(out)], deadline=soon()) == [LoadResult.HIT]
        assert out == make_frame(1, 5000)

    @pytest.mark.parametrize("difference", [-1, 1])
    def test_a_buffer_of_another_length_is_corrupt(self, backend: StorageBackend, difference: int) -> None:
        backend.store([(make_key(0), make_frame(0, 5000))], deadline=soon())
        out = bytearray(5000 + difference)

        assert backend.load_into([make_key(0)], [memoryview(out)], deadline=soon()) == [LoadResult.CORRUPT]

    def test_a_chunk_of_another_length_harms_no_sibling(self, backend: StorageBackend) -> None:
        lengths = (5000, 4000, 5000)
        backend.store([(make_key(n), make_frame(n, length)) for n, length in enumerate(lengths)], deadline=soon())
        outs = [bytearray(5000) for _ in lengths]

        results = backend.load_into([make_key(n) for n in range(3)], [memoryview(out) for out in outs], deadline=soon())

        assert results == [LoadResult.HIT, LoadResult.CORRUPT, LoadResult.HIT]
        assert outs[2] == make_frame(2, 5000)

    def test_threads_store_and_load_at_once(self, backend: StorageBackend) -> None:
        start = threading.Barrier(_THREADS)

        def store_and_load(thread: int) -> None:
            start.wait(_PATIENCE_S)
            for number in range(thread, thread + 6):  # neighbours share keys
                frame = make_frame(number, 50_000)
                out = bytearray(len(frame))
                backend.store([(make_key(number), frame)], deadline=soon())
                result = backend.load_into([make_key(number)], [memoryview(out)], deadline=soon())
                # A store may leave a chunk to another writer that is at work on it.
                assert result == [LoadResult.MISS] or (result == [LoadResult.HIT] and bytes(out) == bytes(frame))

        with ThreadPoolExecutor(_THREADS) as threads:
            for done in [threads.submit(store_and_load, thread) for thread in range(_THREADS)]:
                done.result()
        keys = [make_key(number) for number in range(_THREADS + 5)]
        assert backend.contains(keys, deadline=soon()) == len(keys)

    @pytest.mark.parametrize("call", ["contains", "load_into", "store", "delete", "ping"])
    def test_a_passed_deadline_ends_the_call_at_once(self, backend: StorageBackend, call: str) -> None:
        key, frame, out = make_key(0), make_frame(0, 5000), bytearray(5000)
        calls: dict[str, Callable[[float], object]] = {
            "contains": lambda deadline: backend.contains([key], deadline=deadline),
            "load_into": lambda deadline: backend.load_into([key], [memoryview(out)], deadline=deadline),
            "store": lambda deadline: backend.store([(key, frame)], deadline=deadline),
            "delete": lambda deadline: backend.delete([key], deadline=deadline),
            "ping": lambda deadline: backend.ping(deadline=deadline),
        }
        begin = time.monotonic()

        with pytest.raises(BackendTimeoutError):
            calls[call](time.monotonic() - 0.001)

        assert time.monotonic() - begin < _PROMPT_S

    def test_a_passed_deadline_leaves_the_store_usable(self, backend: StorageBackend) -> None:
        with pytest.raises(BackendTimeoutError):
            backend.store([(make_key(0), make_frame(0, 5000))], deadline=time.monotonic() - 0.001)

        backend.store([(make_key(0), make_frame(0, 5000))], deadline=soon())

        assert backend.contains([make_key(0)], deadline=soon()) == 1

    def test_ping_of_a_working_store_is_quiet(self, backend: StorageBackend) -> None:
        backend.ping(deadline=soon())

    def test_usage_is_within_the_bound(self, backend: StorageBackend) -> None:
        backend.store([(make_key(0), make_frame(0, 5000))], deadline=soon())

        usage = backend.usage()

        assert usage.bytes_used == -1 or usage.bytes_used >= 5000
        assert usage.capacity_bytes == 0 or usage.bytes_used <= usage.capacity_bytes

    def test_closing_twice_is_harmless(self, backend: StorageBackend) -> None:
        backend.ping(deadline=soon())

        backend.close()
        backend.close()
