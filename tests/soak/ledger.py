"""A cache server that tells what it has allocated: ``python -m tests.soak.ledger SOCKET serve ...``.

Resident memory cannot show a small leak: allocators keep what was once in use, each thread's arena its own highest
mark. So every allocation of this server, Python's objects too, goes through one arena of malloc without caches (see
`EXACT`), whose count is exact. Whoever connects to the unix socket is told, after a garbage collection.
"""

from __future__ import annotations

import ctypes
import gc
import socket
import sys
import threading
from pathlib import Path

from lmcache_core.cli.main import main

EXACT = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",  # what a thread's cache keeps would count as in use
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
}
"""The environment to start it with."""

_ANSWER_S = 10.0
_MOST_ANSWER_BYTES = 32


class _MallInfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc, from 2.33 on; see mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def ask(address: Path) -> int:
    """Bytes that a server has allocated and not freed. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(_ANSWER_S)
        asker.connect(str(address))
        return int(asker.recv(_MOST_ANSWER_BYTES))


def in_use_bytes() -> int:
    """Give what this process has allocated and not freed, once its garbage is collected."""
    gc.collect()
    look = ctypes.CDLL(None).mallinfo2
    look.restype = _MallInfo2
    seen = look()
    return int(seen.uordblks + seen.hblkhd)


def _tell(listener: socket.socket) -> None:
    while True:
        asker, _ = listener.accept()
        with asker:
            asker.sendall(b"%d" % in_use_bytes())


def _serve() -> int:
    address = sys.argv.pop(1)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    threading.Thread(target=_tell, args=(listener,), daemon=True, name="soak-ledger").start()
    return main()


if __name__ == "__main__":
    sys.exit(_serve())
