"""Writers killed at any moment: a chunk is whole or not there."""

from __future__ import annotations

import random
import subprocess
import sys
import time

from tests.plugins.redis.conftest import MakeBackend
from tests.redis_server import RedisServer

from lmcache_core import LoadResult
from lmcache_core.testing.storage import make_frame, make_key, soon

LENGTH = 5_000_000
CHUNKS = 4
KILLS = 6
PATIENCE_S = 60.0

WRITER = f"""
import sys, time
from lmcache_core import BackendContext, StoreURL
from lmcache_core.testing.storage import make_frame, make_key
from lmcache_plugins.redis.hooks import build_redis

backend = build_redis(StoreURL.parse(sys.argv[1]), None, BackendContext(name="writer"))
frames = [make_frame(number, {LENGTH}) for number in range({CHUNKS})]
backend.ping(deadline=time.monotonic() + 20)
print("ready", flush=True)
while True:
    for number, frame in enumerate(frames):
        backend.store([(make_key(number), frame)], deadline=time.monotonic() + 0.5)
    backend.delete([make_key(number) for number in range({CHUNKS})], deadline=time.monotonic() + 20)
"""


def test_a_killed_writer_leaves_only_whole_chunks(connect: MakeBackend, redis_server: RedisServer) -> None:
    choice = random.Random("redis")
    backend = connect(redis_server.url)
    hits = kills = 0
    end = time.monotonic() + PATIENCE_S
    while kills < KILLS or (not hits and time.monotonic() < end):
        kills += 1
        with subprocess.Popen([sys.executable, "-c", WRITER, redis_server.url], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(choice.uniform(0.0, 0.02 * kills))  # the moment is what is tried; a busy machine takes its time
            writer.kill()
        for number in range(CHUNKS):
            out = bytearray(LENGTH)
            result = backend.load_into([make_key(number)], [memoryview(out)], deadline=soon())
            assert result in ([LoadResult.HIT], [LoadResult.MISS])
            if result == [LoadResult.HIT]:
                hits += 1
                assert out == make_frame(number, LENGTH)
    assert hits > 0


def test_the_next_store_mends_what_a_killed_writer_left(connect: MakeBackend, redis_server: RedisServer) -> None:
    backend = connect(redis_server.url)
    with subprocess.Popen([sys.executable, "-c", WRITER, redis_server.url], stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(0.02)
        writer.kill()
    items = [(make_key(number), make_frame(number, LENGTH)) for number in range(CHUNKS)]
    end = time.monotonic() + 20
    while backend.contains([key for key, _ in items], deadline=soon()) < CHUNKS and time.monotonic() < end:
        backend.store(items, deadline=soon())  # its lock runs out within 1.5 s

    outs = [memoryview(bytearray(LENGTH)) for _ in items]
    assert backend.load_into([key for key, _ in items], outs, deadline=soon()) == [LoadResult.HIT] * CHUNKS
    with redis_server.client() as client:
        while client.dbsize() > CHUNKS * 6 and time.monotonic() < end:
            time.sleep(0.05)  # killed when it had written all, it has left its lock
        assert client.dbsize() == CHUNKS * 6  # a head and five segments each, and no lock
