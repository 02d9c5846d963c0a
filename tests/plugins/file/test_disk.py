"""``disk://`` against the real file system."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lmcache_core import BackendError, BackendFullError, BackendTimeoutError, BackendUsage, LoadResult
from lmcache_core.testing.storage import NAMESPACE, StorageBackendContract, make_frame, make_key, soon
from lmcache_plugins.file.disk import DiskBackend

LENGTH = 10_000
CHUNKS = 4
CAPACITY = CHUNKS * LENGTH


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def backend(root: Path) -> Iterator[DiskBackend]:
    backend = make(root)
    yield backend
    backend.close()


def make(root: Path, capacity_bytes: int = CAPACITY) -> DiskBackend:
    return DiskBackend(str(root), name="LocalDiskBackend", capacity_bytes=capacity_bytes)


def chunk_file(root: Path, number: int = 0) -> Path:
    digest = make_key(number).digest.hex()
    return root / NAMESPACE.name / digest[:2] / f"{digest}.kv"


def store(backend: DiskBackend, *numbers: int) -> None:
    backend.store([(make_key(number), make_frame(number, LENGTH)) for number in numbers], deadline=soon())


def load(backend: DiskBackend, *numbers: int) -> list[LoadResult]:
    outs = [memoryview(bytearray(LENGTH)) for _ in numbers]
    return backend.load_into([make_key(number) for number in numbers], outs, deadline=soon())


def present(backend: DiskBackend, count: int = 20) -> list[int]:
    return [number for number in range(count) if backend.contains([make_key(number)], deadline=soon())]


def bytes_on_disk(root: Path) -> int:
    """Of all chunks, those being written included."""
    total = 0
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() and path.name != ".lmcache-store" else 0
    return total


class TestContract(StorageBackendContract):
    @pytest.fixture
    def backend(self, root: Path) -> Iterator[DiskBackend]:
        backend = make(root, 64 * 1024 * 1024)
        yield backend
        backend.close()


def test_usage_is_unknown_before_the_first_call(backend: DiskBackend) -> None:
    assert backend.usage() == BackendUsage(bytes_used=-1, capacity_bytes=CAPACITY)


def test_usage_counts_files(backend: DiskBackend) -> None:
    store(backend, 0, 1)

    assert backend.usage() == BackendUsage(bytes_used=2 * LENGTH, capacity_bytes=CAPACITY)


def test_the_least_recently_stored_goes_first(backend: DiskBackend) -> None:
    store(backend, *range(CHUNKS + 2))

    assert present(backend) == [2, 3, 4, 5]


def test_a_load_keeps_a_chunk(backend: DiskBackend) -> None:
    store(backend, *range(CHUNKS))
    load(backend, 0)

    store(backend, 10)

    assert present(backend) == [0, 2, 3, 10]


def test_storing_again_keeps_a_chunk(backend: DiskBackend) -> None:
    store(backend, *range(CHUNKS))
    store(backend, 0)

    store(backend, 10)

    assert present(backend) == [0, 2, 3, 10]


def test_an_evicted_chunk_has_no_file(backend: DiskBackend, root: Path) -> None:
    store(backend, *range(CHUNKS + 1))

    assert not chunk_file(root, 0).exists()
    assert bytes_on_disk(root) == CAPACITY


def test_a_chunk_of_another_length_is_replaced(backend: DiskBackend, root: Path) -> None:
    store(backend, 0)

    backend.store([(make_key(0), make_frame(1, 50))], deadline=soon())

    assert chunk_file(root).read_bytes() == make_frame(1, 50)
    assert backend.usage().bytes_used == 50


def test_a_chunk_larger_than_the_store_is_refused(backend: DiskBackend, root: Path) -> None:
    store(backend, 0)

    with pytest.raises(BackendFullError) as caught:
        backend.store([(make_key(1), make_frame(1, CAPACITY + 1))], deadline=soon())

    assert str(caught.value) == (
        f"LocalDiskBackend: a chunk of 40001 bytes is larger than the whole store at {root} with 40000; raise its size"
    )
    assert load(backend, 0) == [LoadResult.HIT]


def test_a_new_instance_finds_the_chunks_in_their_order(root: Path) -> None:
    first = make(root)
    store(first, 0, 1, 2, 3)
    for age_s, number in enumerate([2, 0, 3, 1]):
        os.utime(chunk_file(root, number), (1e9 - age_s, 1e9 - age_s))  # 1 is the oldest, then 3
    first.close()
    second = make(root)

    store(second, 10, 11)

    assert present(second) == [0, 2, 10, 11]
    second.close()


def test_a_smaller_bound_evicts_at_the_start(root: Path) -> None:
    first = make(root)
    store(first, 0, 1, 2, 3)
    first.close()
    second = make(root, 2 * LENGTH + 1)

    second.ping(deadline=soon())

    assert second.usage() == BackendUsage(bytes_used=2 * LENGTH, capacity_bytes=2 * LENGTH + 1)
    assert bytes_on_disk(root) == 2 * LENGTH
    second.close()


def test_foreign_files_are_left_alone(backend: DiskBackend, root: Path) -> None:
    (root / "mine" / "ab").mkdir(parents=True)
    foreign = [root / "notes.txt", root / "mine" / "readme", root / "mine" / "ab" / "abc.kv"]
    for path in foreign:
        path.write_text("mine")

    store(backend, *range(CHUNKS + 1))

    assert [path.read_text() for path in foreign] == ["mine"] * 3
    assert backend.usage().bytes_used == CAPACITY


def test_a_new_instance_sweeps_all_temporaries(root: Path) -> None:
    first = make(root)
    first.ping(deadline=soon())
    first.close()
    (root / ".tmp" / "left").write_bytes(b"half")
    second = make(root)

    second.ping(deadline=soon())

    assert list((root / ".tmp").iterdir()) == []
    second.close()


def test_two_instances_cannot_share_a_folder(backend: DiskBackend, root: Path) -> None:
    backend.ping(deadline=soon())

    with pytest.raises(BackendError) as caught:
        make(root).ping(deadline=soon())

    assert str(caught.value) == (
        f"LocalDiskBackend: the folder {root} is in use by process {os.getpid()}; give each instance a folder of its own"
    )


def test_a_killed_owner_frees_the_folder(root: Path) -> None:
    script = (
        "import sys, time\n"
        "from lmcache_plugins.file.disk import DiskBackend\n"
        "backend = DiskBackend(sys.argv[1], name='LocalDiskBackend', capacity_bytes=1000)\n"
        "backend.ping(deadline=time.monotonic() + 20)\n"
        "print('owned', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout.readline() == b"owned\n"
        owner.kill()
        owner.wait()
        backend = make(root)

        backend.ping(deadline=soon())

        backend.close()


def test_closing_frees_the_folder(backend: DiskBackend, root: Path) -> None:
    backend.ping(deadline=soon())
    backend.close()
    second = make(root)

    second.ping(deadline=soon())

    second.close()


def test_a_closed_store_says_so(backend: DiskBackend, root: Path) -> None:
    backend.close()

    with pytest.raises(BackendError) as caught:
        backend.ping(deadline=soon())

    assert str(caught.value) == f"LocalDiskBackend: the store at {root} is closed"


def test_a_shared_folder_is_refused(backend: DiskBackend, root: Path) -> None:
    root.mkdir()
    (root / ".lmcache-store").write_text("lmcache-core file store 1\n")

    with pytest.raises(BackendError) as caught:
        backend.ping(deadline=soon())

    assert str(caught.value) == (
        f"LocalDiskBackend: {root} is a folder of 'lmcache-core file store 1', not of 'lmcache-core disk store 1'; "
        "give each store a folder of its own"
    )


def test_a_file_that_somebody_removed_is_a_miss_and_frees_its_bytes(backend: DiskBackend, root: Path) -> None:
    store(backend, 0)
    chunk_file(root).unlink()

    assert load(backend, 0) == [LoadResult.MISS]
    assert backend.usage().bytes_used == 0
    assert present(backend) == []


@pytest.mark.parametrize("length", [0, 1, 64, 128, LENGTH // 2, LENGTH - 1, LENGTH + 1])
def test_a_file_of_another_length_is_corrupt(backend: DiskBackend, root: Path, length: int) -> None:
    store(backend, 0, 1, 2)
    os.truncate(chunk_file(root, 1), length)

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.CORRUPT, LoadResult.HIT]


def test_a_chunk_that_cannot_be_opened_harms_no_sibling(backend: DiskBackend, root: Path) -> None:
    store(backend, 0, 1, 2)
    chunk_file(root, 1).unlink()
    chunk_file(root, 1).symlink_to(chunk_file(root, 1))

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.FAILED, LoadResult.HIT]


@pytest.mark.parametrize("call", ["load", "contains", "store", "delete", "ping"])
def test_a_folder_that_goes_away_is_an_error(backend: DiskBackend, root: Path, call: str) -> None:
    store(backend, 0)
    root.rename(root.with_name("away"))
    calls = {
        "load": lambda: load(backend, 0),
        "contains": lambda: backend.contains([make_key(0)], deadline=soon()),
        "store": lambda: store(backend, 1),
        "delete": lambda: backend.delete([make_key(0)], deadline=soon()),
        "ping": lambda: backend.ping(deadline=soon()),
    }

    with pytest.raises(BackendError) as caught:
        calls[call]()

    assert str(caught.value) == f"LocalDiskBackend: the folder {root} is gone; mount or create it again"


def test_a_folder_that_comes_back_serves_again(backend: DiskBackend, root: Path) -> None:
    store(backend, 0)
    root.rename(root.with_name("away"))
    with pytest.raises(BackendError):
        backend.ping(deadline=soon())
    root.with_name("away").rename(root)

    assert load(backend, 0) == [LoadResult.HIT]


def test_a_folder_that_is_made_anew_starts_empty(backend: DiskBackend, root: Path) -> None:
    store(backend, 0)
    shutil.rmtree(root)
    root.mkdir()

    assert present(backend) == []
    assert backend.usage().bytes_used == 0


def test_a_full_disk_leaves_nothing_held(root: Path, file_size_limit: int) -> None:
    backend = make(root, 10 * file_size_limit)

    with pytest.raises(BackendFullError) as caught:
        backend.store([(make_key(0), make_frame(0, file_size_limit + 1))], deadline=soon())

    assert str(caught.value) == (
        f"LocalDiskBackend: no room while storing {chunk_file(root)}: file too large; free space, or raise the quota"
    )
    assert backend.usage().bytes_used == 0
    assert bytes_on_disk(root) == 0
    backend.close()


def test_an_index_that_takes_longer_than_a_deadline_goes_on_at_the_next_call(root: Path) -> None:
    first = make(root, 10**9)
    store(first, 0)
    first.close()
    shelf = chunk_file(root).parent
    for number in range(600):
        (shelf / f"{shelf.name}{number:062x}.kv").write_bytes(b"x")
    second = make(root, 10**9)
    second._folder.check()

    with pytest.raises(BackendTimeoutError) as caught:
        second._open(time.monotonic() - 1)

    assert str(caught.value) == f"LocalDiskBackend: still reading the folder {root}, 256 chunks so far"
    assert present(second) == [0]
    assert second.usage().bytes_used == LENGTH + 600
    second.close()


def test_the_bound_holds_at_every_moment_under_concurrent_stores(backend: DiskBackend, root: Path) -> None:
    backend.ping(deadline=soon())
    most_bytes = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most_bytes
        while not done.is_set():
            most_bytes = max(most_bytes, backend.usage().bytes_used)

    def churn(seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(60):
            number = choice.randrange(12)
            if choice.random() < 0.2:
                backend.delete([make_key(number)], deadline=soon())
            else:
                store(backend, number)
                load(backend, choice.randrange(12))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(6) as threads:
        for job in [threads.submit(churn, seed) for seed in range(6)]:
            job.result()
    done.set()
    watcher.join()
    with backend._changed:  # while a chunk goes from written to kept
        asking = threading.Thread(target=backend.usage)
        asking.start()
        asking.join(0.1)
        waits = asking.is_alive()

    assert waits
    assert most_bytes <= CAPACITY
    assert backend.usage().bytes_used == bytes_on_disk(root) == len(present(backend)) * LENGTH


def test_more_writers_than_room_wait_for_each_other(root: Path) -> None:
    backend = make(root, LENGTH)

    with ThreadPoolExecutor(6) as threads:
        for job in [threads.submit(store, backend, number) for number in range(6)]:
            job.result()

    assert len(present(backend)) == 1
    assert bytes_on_disk(root) == LENGTH
    backend.close()
