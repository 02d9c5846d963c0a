"""Writers killed at any moment: a chunk is whole or not there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmcache_core import LoadResult, StorageBackend
from lmcache_core.testing.storage import make_frame, make_key, soon
from lmcache_plugins.file.backend import FileBackend
from lmcache_plugins.file.disk import DiskBackend

LENGTH = 2_000_000
CHUNKS = 8
KILLS = 6

WRITER = f"""
import sys, time
from lmcache_core.testing.storage import make_frame, make_key
from lmcache_plugins.file.backend import FileBackend
from lmcache_plugins.file.disk import DiskBackend

kind, root = sys.argv[1:]
backend = (
    FileBackend(root, name="writer")
    if kind == "file"
    else DiskBackend(root, name="writer", capacity_bytes={CHUNKS * LENGTH})
)
frames = [make_frame(number, {LENGTH}) for number in range({CHUNKS})]
print("ready", flush=True)
while True:
    for number, frame in enumerate(frames):
        backend.store([(make_key(number), frame)], deadline=time.monotonic() + 20)
    backend.delete([make_key(number) for number in range({CHUNKS})], deadline=time.monotonic() + 20)
"""


def open_store(kind: str, root: Path) -> StorageBackend:
    if kind == "file":
        return FileBackend(str(root), name="reader")
    return DiskBackend(str(root), name="reader", capacity_bytes=CHUNKS * LENGTH)


@pytest.mark.parametrize("kind", ["file", "disk"])
def test_a_killed_writer_leaves_only_whole_chunks(kind: str, tmp_path: Path) -> None:
    choice = random.Random(kind)
    root = tmp_path / "store"
    hits = 0
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", WRITER, kind, str(root)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(choice.uniform(0.0, 0.05))  # the moment is what is tried
            writer.kill()
        store = open_store(kind, root)
        for number in range(CHUNKS):
            out = bytearray(LENGTH)
            result = store.load_into([make_key(number)], [memoryview(out)], deadline=soon())
            assert result in ([LoadResult.HIT], [LoadResult.MISS])
            if result == [LoadResult.HIT]:
                hits += 1
                assert out == make_frame(number, LENGTH)
        store.close()
    assert hits > 0


def test_a_killed_writer_of_a_disk_leaves_nothing_after_the_next_start(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with subprocess.Popen([sys.executable, "-c", WRITER, "disk", str(root)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        while not any(root.glob(".tmp/*")):
            time.sleep(0.0005)
        writer.kill()
    store = open_store("disk", root)

    store.ping(deadline=soon())

    assert list(root.glob(".tmp/*")) == []
    assert store.usage().bytes_used == sum(path.stat().st_size for path in root.rglob("*.kv"))
    store.close()
