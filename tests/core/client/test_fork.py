"""A forked process has a session of its own and leaves its parent's alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tests.core.client.fake_server import FakeServer

from lmcache_core.wire.messages import Forsake, Found, Hello, Lookup, Return

SCRIPT = """
    import os, signal, sys, torch
    from pathlib import Path
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
        timeout_s=10.0,
        name="forks",
    )
    kv = torch.ones(layout.kv_shape(8))
    assert client.store(list(range(8)), kv) == 8
    {before}
    child = os.fork()
    if not child:
        try:
            {child}
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    {parent}
"""


def run(server: FakeServer, child: str, parent: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(SCRIPT).format(
        child=textwrap.indent(textwrap.dedent(child).strip(), " " * 8).strip(),
        parent=textwrap.dedent(parent).strip(),
        before=before,
    )
    return subprocess.run(
        [sys.executable, "-c", script, str(server.address)], capture_output=True, text=True, timeout=60, check=False
    )


WAIT = "assert os.waitpid(child, 0)[1] == 0"


def test_parent_and_child_are_both_served(server: FakeServer) -> None:
    done = run(
        server,
        """
        assert client.store([5] * 8, kv) == 8
        out = torch.zeros_like(kv)
        assert client.retrieve(list(range(8)), out).all() and out.eq(1).all()
        assert client.is_healthy()
        client.close()
        """,
        f"{WAIT}\nassert client.lookup([5] * 8) == 8\nclient.close()",
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert len(server.all(Hello)) == 2
    assert len({message.pid for message in server.all(Hello)}) == 2
    assert len({message.session for message in server.all(Return)}) == 1


def test_a_child_that_does_not_call_opens_no_session(server: FakeServer) -> None:
    done = run(server, "pass", f"{WAIT}\nassert client.lookup([5] * 8) == 0\nclient.close()")

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(server.all(Hello)) == 1


def test_a_child_holds_neither_its_parents_lifeline_nor_its_arena(server: FakeServer) -> None:
    done = run(
        server,
        """
        import gc
        gc.collect()
        assert "fake-arena" not in Path("/proc/self/maps").read_text()
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        assert not any("fake-arena" in link for link in links), links
        """,
        WAIT,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_parents_death_is_seen_although_a_child_lives(server: FakeServer) -> None:
    done = run(
        server,
        "print(os.getpid(), flush=True)\nos.close(1)\nos.close(2)\nsignal.pause()",
        "signal.sigtimedwait([signal.SIGCHLD], 0.3)\nos.kill(os.getpid(), signal.SIGKILL)",
    )
    try:
        lifeline = server.lifelines[0]
        lifeline.settimeout(10)
        assert lifeline.recv(1) == b""
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


@pytest.mark.parametrize(
    "child", ["assert pending.done()", "pending.cancel()", "assert pending.result(0) == 0", "del pending"]
)
def test_a_child_leaves_its_parents_lookups_alone(server: FakeServer, child: str) -> None:
    def late(message: Lookup) -> Found:
        time.sleep(0.5)  # until the child has been
        return Found(message.call, 2, 2)

    server.on(Lookup, late)
    done = run(
        server,
        child,
        f"{WAIT}\nassert pending.result() == 8\nclient.close()",
        before="pending = client.lookup_async(list(range(8)))",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert server.all(Forsake) == []
