"""As a third party uses it: a pytest of its own, with nothing but the documented line."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import socket

from lmcache_core import BackendError
from lmcache_core.testing import CallError, Refuse
from tests.memory_store import MemoryStore

pytest_plugins = ["lmcache_core.testing.fixtures"]


def test_proxy(fault_proxy):
    proxy = fault_proxy(to=("127.0.0.1", 1), seed=7)
    proxy.apply(Refuse())
    try:
        socket.create_connection((proxy.host, proxy.port), timeout=5)
    except ConnectionRefusedError:
        return
    raise AssertionError


def test_backend(faulty_backend):
    store = faulty_backend(MemoryStore())
    store.faults.apply(CallError())
    try:
        store.ping(deadline=0)
    except BackendError:
        return
    raise AssertionError
"""
ROOT = Path(__file__).parents[3]


def test_fixtures_come_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "test_mine.py"
    file.write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--rootdir",
        str(tmp_path),
        str(file),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kit_needs_no_pytest() -> None:
    code = "import sys; from lmcache_core.testing import FaultProxy, FaultyBackend; print('pytest' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert printed.stdout == "False\n"


def test_every_name_is_there() -> None:
    import lmcache_core.testing

    assert [name for name in lmcache_core.testing.__all__ if getattr(lmcache_core.testing, name, None) is None] == []
    assert dir(lmcache_core.testing) == sorted(lmcache_core.testing.__all__)
