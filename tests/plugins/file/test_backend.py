"""``file://`` against the real file system."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from lmcache_core import BackendError, BackendFullError, LoadResult
from lmcache_core.testing.storage import NAMESPACE, StorageBackendContract, make_frame, make_key, soon
from lmcache_plugins.file.backend import FileBackend

LENGTH = 10_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def backend(root: Path) -> FileBackend:
    return FileBackend(str(root), name="RemoteBackend")


def chunk_file(root: Path, number: int = 0) -> Path:
    digest = make_key(number).digest.hex()
    return root / NAMESPACE.name / digest[:2] / f"{digest}.kv"


def store(backend: FileBackend, *numbers: int) -> None:
    backend.store([(make_key(number), make_frame(number, LENGTH)) for number in numbers], deadline=soon())


def load(backend: FileBackend, *numbers: int) -> list[LoadResult]:
    outs = [memoryview(bytearray(LENGTH)) for _ in numbers]
    return backend.load_into([make_key(number) for number in numbers], outs, deadline=soon())


class TestContract(StorageBackendContract):
    @pytest.fixture
    def backend(self, root: Path) -> FileBackend:
        return FileBackend(str(root), name="RemoteBackend")


class TestContractWithFsync(StorageBackendContract):
    @pytest.fixture
    def backend(self, root: Path) -> FileBackend:
        return FileBackend(str(root), name="RemoteBackend", fsync=True)


def test_building_makes_no_folder(backend: FileBackend, root: Path) -> None:
    assert not root.exists()


def test_a_chunk_lies_where_the_reference_says(backend: FileBackend, root: Path) -> None:
    store(backend, 0)

    assert chunk_file(root).read_bytes() == make_frame(0, LENGTH)


def test_a_store_leaves_no_temporary(backend: FileBackend, root: Path) -> None:
    store(backend, 0, 1)

    assert list((root / ".tmp").iterdir()) == []


def test_two_instances_share_chunks(backend: FileBackend, root: Path) -> None:
    store(backend, 0)

    assert load(FileBackend(str(root), name="other"), 0) == [LoadResult.HIT]


@pytest.mark.parametrize("length", [0, 1, 64, 128, LENGTH // 2, LENGTH - 1, LENGTH + 1])
def test_a_file_of_another_length_is_corrupt(backend: FileBackend, root: Path, length: int) -> None:
    store(backend, 0, 1, 2)
    os.truncate(chunk_file(root, 1), length)

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.CORRUPT, LoadResult.HIT]


def test_an_empty_file_is_not_contained(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    os.truncate(chunk_file(root), 0)

    assert backend.contains([make_key(0)], deadline=soon()) == 0


def test_a_file_of_another_length_is_replaced_by_a_store(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    os.truncate(chunk_file(root), 5)

    store(backend, 0)

    assert load(backend, 0) == [LoadResult.HIT]


def test_a_folder_in_the_place_of_a_chunk_is_corrupt(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    chunk_file(root).unlink()
    chunk_file(root).mkdir()

    assert load(backend, 0) == [LoadResult.CORRUPT]


def test_a_fifo_in_the_place_of_a_chunk_does_not_hang(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    chunk_file(root).unlink()
    os.mkfifo(chunk_file(root))

    assert load(backend, 0) == [LoadResult.CORRUPT]


def test_a_chunk_that_cannot_be_opened_harms_no_sibling(backend: FileBackend, root: Path) -> None:
    store(backend, 0, 1, 2)
    make_loop(chunk_file(root, 1))

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.FAILED, LoadResult.HIT]


def test_a_load_of_nothing_but_failures_raises(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    make_loop(chunk_file(root))

    with pytest.raises(BackendError) as caught:
        load(backend, 0)

    assert (
        str(caught.value)
        == f"RemoteBackend: failed while loading {chunk_file(root)}: too many levels of symbolic links"
    )


def test_contains_of_a_failing_first_key_raises(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    make_loop(chunk_file(root))

    with pytest.raises(BackendError) as caught:
        backend.contains([make_key(0)], deadline=soon())

    assert (
        str(caught.value)
        == f"RemoteBackend: failed while looking for {chunk_file(root)}: too many levels of symbolic links"
    )


def test_contains_stops_before_a_failing_key(backend: FileBackend, root: Path) -> None:
    store(backend, 0, 1)
    make_loop(chunk_file(root, 1))

    assert backend.contains([make_key(0), make_key(1)], deadline=soon()) == 1


@pytest.mark.parametrize("call", ["load", "contains", "store", "delete", "ping"])
def test_a_folder_that_goes_away_is_an_error(backend: FileBackend, root: Path, call: str) -> None:
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

    assert str(caught.value) == f"RemoteBackend: the folder {root} is gone; mount or create it again"
    assert not root.exists()


def test_a_folder_that_comes_back_serves_again(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    root.rename(root.with_name("away"))
    with pytest.raises(BackendError):
        backend.ping(deadline=soon())
    root.with_name("away").rename(root)

    backend.ping(deadline=soon())

    assert load(backend, 0) == [LoadResult.HIT]


def test_a_folder_that_is_made_anew_serves_again(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    shutil.rmtree(root)
    root.mkdir()

    assert load(backend, 0) == [LoadResult.MISS]
    store(backend, 0)
    assert load(backend, 0) == [LoadResult.HIT]


def test_an_empty_folder_of_another_file_system_is_not_filled(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    shutil.rmtree(root)
    root.mkdir()
    backend._folder._device += 1  # what unmounting would leave; mounting needs root

    with pytest.raises(BackendError) as caught:
        store(backend, 1)

    assert str(caught.value) == (
        f"RemoteBackend: another file system is mounted at {root} than before, without .lmcache-store; "
        "mount the right one, or restart to use this one"
    )
    assert list(root.iterdir()) == []


def test_emptied_folders_are_made_again(backend: FileBackend, root: Path) -> None:
    store(backend, 0)
    for path in (root / NAMESPACE.name, root / ".tmp"):
        shutil.rmtree(path)

    store(backend, 0)

    assert load(backend, 0) == [LoadResult.HIT]


def test_a_missing_parent_is_an_error(tmp_path: Path) -> None:
    backend = FileBackend(f"{tmp_path}/no/store", name="RemoteBackend")

    with pytest.raises(BackendError) as caught:
        backend.ping(deadline=soon())

    assert str(caught.value) == (
        f"RemoteBackend: cannot make the folder {tmp_path}/no/store, as {tmp_path}/no does not exist; create or mount it"
    )


def test_a_file_instead_of_the_folder_is_an_error(root: Path) -> None:
    root.write_text("mine")

    with pytest.raises(BackendError) as caught:
        FileBackend(str(root), name="RemoteBackend").ping(deadline=soon())

    assert str(caught.value) == f"RemoteBackend: {root} is no folder; name a folder"
    assert root.read_text() == "mine"


def test_a_folder_of_another_kind_is_refused(root: Path) -> None:
    root.mkdir()
    (root / ".lmcache-store").write_text("lmcache-core file store 2\n")

    with pytest.raises(BackendError) as caught:
        FileBackend(str(root), name="RemoteBackend").ping(deadline=soon())

    assert str(caught.value) == (
        f"RemoteBackend: {root} is a folder of 'lmcache-core file store 2', not of 'lmcache-core file store 1'; "
        "give each store a folder of its own"
    )


def test_a_full_disk_is_its_own_error_and_leaves_nothing(
    backend: FileBackend, root: Path, file_size_limit: int
) -> None:
    backend.ping(deadline=soon())

    with pytest.raises(BackendFullError) as caught:
        backend.store([(make_key(0), make_frame(0, file_size_limit + 1))], deadline=soon())

    assert str(caught.value) == (
        f"RemoteBackend: no room while storing {chunk_file(root)}: file too large; free space, or raise the quota"
    )
    assert list((root / ".tmp").iterdir()) == []
    assert backend.contains([make_key(0)], deadline=soon()) == 0


def test_ping_sweeps_what_dead_writers_left(backend: FileBackend, root: Path) -> None:
    (root / ".tmp").mkdir(parents=True)
    old, new = root / ".tmp" / "old", root / ".tmp" / "new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (time.time() - 3700, time.time() - 3700))

    backend.ping(deadline=soon())

    assert (old.exists(), new.exists()) == (False, True)


def make_loop(path: Path) -> None:
    """Put something there that even root cannot open: a link to itself."""
    path.unlink()
    path.symlink_to(path)
