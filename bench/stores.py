"""Throughput of the stores, each against a ceiling measured in the same run.

Run: python bench/stores.py [folder]. The folder should lie on the disk that is meant; default: a temporary one.
Prints GB/s of the best round and the median, over rounds, of ours divided by the ceiling.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests' server

from tests.redis_server import RedisServer

from lmcache_core import BackendContext, LoadResult, StorageBackend, StoreURL
from lmcache_core.testing.storage import make_frame, make_key
from lmcache_plugins.file.backend import FileBackend
from lmcache_plugins.file.disk import DiskBackend
from lmcache_plugins.redis.hooks import build_redis
from lmcache_plugins.redis.record import VALUE_BYTES

HEADER_BYTES = 128
SIZES = {"32 MiB": 32 * 2**20 + HEADER_BYTES, "5.6 MiB": 256 * 22_528 + HEADER_BYTES}
ROUND_BYTES = 256 * 2**20
ROUNDS = 7
AHEAD = 8

Work = Callable[[], None]


def seconds(work: Work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(label: str, moved_bytes: int, ours: Work, ceiling: Work, before: Work = lambda: None) -> None:
    """Alternate, so that a busy moment of the machine hits both."""
    pairs = []
    for _ in range(ROUNDS + 1):
        before()
        ours_s = seconds(ours)
        before()
        pairs.append((ours_s, seconds(ceiling)))
    pairs = pairs[1:]  # the first warms up
    best_ours, best_ceiling = (moved_bytes / min(column) / 1e9 for column in zip(*pairs, strict=True))
    ratio = statistics.median(ceiling_s / ours_s for ours_s, ceiling_s in pairs)
    print(f"{label:<44} {best_ours:6.2f} GB/s   ceiling {best_ceiling:6.2f}   ratio {ratio:5.2f}", flush=True)


def deadline() -> float:
    return time.monotonic() + 60


def hit(results: list[LoadResult]) -> None:
    if set(results) != {LoadResult.HIT}:
        raise SystemExit(f"a load gave {results}")


def bench_files(label: str, backend: StorageBackend, folder: Path, size_bytes: int) -> None:
    count = ROUND_BYTES // size_bytes
    frames = [make_frame(number, size_bytes) for number in range(count)]
    outs = [memoryview(bytearray(size_bytes)) for _ in range(count)]
    keys = [make_key(number) for number in range(count)]
    names = [f"{folder}/plain-{number}" for number in range(count)]

    def write_and_rename() -> None:
        for name, frame in zip(names, frames, strict=True):
            handle = os.open(name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(handle, frame)
            os.close(handle)
            os.replace(name + ".tmp", name)  # noqa: PTH105 - the bare call is the ceiling

    def read() -> None:
        for name, out in zip(names, outs, strict=True):
            handle = os.open(name, os.O_RDONLY)
            os.preadv(handle, [out], 0)
            os.close(handle)

    def clear() -> None:
        backend.delete(keys, deadline=deadline())
        for name in names:
            Path(name).unlink(missing_ok=True)

    items = list(zip(keys, frames, strict=True))
    moved_bytes = count * size_bytes
    compare(f"{label} store", moved_bytes, lambda: backend.store(items, deadline=deadline()), write_and_rename, clear)
    backend.store(items, deadline=deadline())
    compare(f"{label} load", moved_bytes, lambda: hit(backend.load_into(keys, outs, deadline=deadline())), read)
    clear()


def in_threads(works: list[Work]) -> Work:
    def run() -> None:
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


class RawSocket:
    """The ceiling: values of the same length over a bare socket, pipelined, read into place."""

    def __init__(self, server: RedisServer, number: int, size_bytes: int) -> None:
        self.socket = socket.create_connection((server.host, server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.values = size_bytes // VALUE_BYTES
        self.names = [b"raw:%d:%d" % (number, index) for index in range(self.values)]
        self.buffer = memoryview(bytearray(b"x") * (self.values * VALUE_BYTES))  # not zeros: those are one page

    def part(self, index: int) -> memoryview:
        """Where a value lies."""
        return self.buffer[index * VALUE_BYTES : (index + 1) * VALUE_BYTES]

    def set_all(self) -> None:
        """Store all values."""
        for index, name in enumerate(self.names):
            self.socket.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(name), name, VALUE_BYTES))
            self.socket.sendall(self.part(index))
            self.socket.sendall(b"\r\n")
        self.receive(5 * self.values)

    def get_all(self) -> None:
        """Load all values."""
        for index in range(self.values):
            if index % AHEAD == 0:
                batch = self.names[index : index + AHEAD]
                self.socket.sendall(b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(n), n) for n in batch))
            self.receive(len(b"$%d\r\n" % VALUE_BYTES))
            done = 0
            while done < VALUE_BYTES:
                done += self.socket.recv_into(self.part(index)[done:])
            self.receive(2)

    def receive(self, length_bytes: int) -> None:
        """Read so many bytes and forget them."""
        while length_bytes:
            length_bytes -= len(self.socket.recv(length_bytes))


def bench_redis(server: RedisServer, label: str, size_bytes: int, connections: int) -> None:
    context = BackendContext(name="bench", connections=connections)
    backend = build_redis(StoreURL.parse(server.url), None, context)
    count = max(1, ROUND_BYTES // connections // size_bytes)
    keys = [[make_key(thread * count + number) for number in range(count)] for thread in range(connections)]
    frames = [make_frame(number, size_bytes) for number in range(count)]
    outs = [[memoryview(bytearray(size_bytes)) for _ in range(count)] for _ in range(connections)]
    raws = [RawSocket(server, number, count * size_bytes) for number in range(connections)]
    moved_bytes = connections * count * size_bytes

    def store(thread: int) -> Work:
        items = list(zip(keys[thread], frames, strict=True))
        return lambda: backend.store(items, deadline=deadline())

    def load(thread: int) -> Work:
        return lambda: hit(backend.load_into(keys[thread], outs[thread], deadline=deadline()))

    threads = range(connections)
    with server.client() as client:
        compare(
            f"redis {label}, {connections} connections, store",
            moved_bytes,
            in_threads([store(thread) for thread in threads]),
            in_threads([raw.set_all for raw in raws]),
            client.flushall,
        )
        in_threads([store(thread) for thread in threads])()
        compare(
            f"redis {label}, {connections} connections, load",
            moved_bytes,
            in_threads([load(thread) for thread in threads]),
            in_threads([raw.get_all for raw in raws]),
        )
        client.flushall()
    for raw in raws:
        raw.socket.close()
    backend.close()


def bench_contains(server: RedisServer) -> None:
    backend = build_redis(StoreURL.parse(server.url), None, BackendContext(name="bench"))
    keys = [make_key(number) for number in range(256)]
    backend.store([(key, make_frame(0, 64)) for key in keys], deadline=deadline())
    raw = RawSocket(server, 0, VALUE_BYTES)
    names = [f"lmcache:{{{key}}}".encode() for key in keys]

    def bare() -> None:
        raw.socket.sendall(b"".join(b"*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names))
        raw.receive(4 * len(names))

    def ours() -> None:
        if backend.contains(keys, deadline=deadline()) != len(keys):
            sys.exit("not all there")

    rounds = 300
    ours_s, bare_s = [], []
    for _ in range(rounds):
        ours_s.append(seconds(ours))
        bare_s.append(seconds(bare))
    ours_us, bare_us = statistics.median(ours_s) / 256 * 1e6, statistics.median(bare_s) / 256 * 1e6
    label = "redis contains of 256 keys"
    print(f"{label:<44} {ours_us:6.2f} us/key bare    {bare_us:6.2f}   ratio {ours_us / bare_us:5.2f}")
    raw.socket.close()
    backend.close()


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir()) / f"lmcache-bench-{os.getpid()}"
    folder.mkdir()
    try:
        for label, size_bytes in SIZES.items():
            bench_files(f"file {label}", FileBackend(f"{folder}/file", name="bench"), folder, size_bytes)
            disk = DiskBackend(f"{folder}/disk", name="bench", capacity_bytes=2 * ROUND_BYTES)
            bench_files(f"disk {label}", disk, folder, size_bytes)
            disk.close()
    finally:
        shutil.rmtree(folder)
    with RedisServer() as server:
        for label, size_bytes in SIZES.items():
            for connections in (1, 4):
                bench_redis(server, label, size_bytes, connections)
        bench_contains(server)


if __name__ == "__main__":
    main()
