"""An engine that is out of files goes on, with or without a cache."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.core.client.fake_server import FakeServer

SCRIPT = """
    import os, resource, sys, time
    from lmcache_core.adapters.tensors import TensorAdapter
    from lmcache_core.client.cache_client import CacheClient
    from lmcache_core.client.wish import Wish
    from lmcache_core.contracts.layout import KVLayout
    from lmcache_core.metrics.families import CacheMetrics
    from lmcache_core.wire.address import parse_address

    layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
    client = CacheClient(
        parse_address(sys.argv[1]),
        Wish(layout=layout, model_name="m"),
        make_adapter=lambda tokens: TensorAdapter(layout, tokens),
        metrics=CacheMetrics(),
        timeout_s=2.0,
        name="poor",
    )
    client._remote._keeper.stop()
    assert client.chunk_tokens == 4
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    for spare in range(24):
        session = client._remote.link.session
        if session is not None:
            client._remote.link.lost(session, "is left")
        del session
        client._remote.link.healthy = True
        files = []
        try:
            while True:
                files.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for _ in range(spare):
                os.close(files.pop())
        client.lookup(list(range(8)))
        for file in files:
            os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client._remote.link.healthy = True
    client.lookup(list(range(8)))
    assert client.is_healthy(), client.reason
    print("alive", flush=True)
    os._exit(0)
"""


def test_a_session_is_opened_only_where_there_are_files_for_it(server: FakeServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(server.address)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]
