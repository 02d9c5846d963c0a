"""Makes workers by forking, so that a new one costs milliseconds and not the import of torch.

Run: ``python -m tests.soak.nursery FOLDER ADDRESS``. It reads lines ``NUMBER SEED`` and answers ``started NUMBER PID``;
when a worker ends it says ``ended PID CODE``, where a code below 0 is a signal. At the end of its input it tells all
to end and waits for them.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from tests.soak.worker import work

_WATCH_S = 0.05


def main() -> None:
    """Serve until the input ends and the last worker has."""
    folder, address = Path(sys.argv[1]), sys.argv[2]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a worker takes it once it has its handler
    living: set[int] = set()
    open_input, rest = True, b""
    while open_input or living:
        if open_input and select.select([0], [], [], _WATCH_S)[0]:
            came = os.read(0, 4096)
            open_input = bool(came)
            *lines, rest = (rest + came).split(b"\n")
            for line in lines:
                number, seed = line.split()
                living.add(_fork(folder, address, int(number), int(seed)))
            if not open_input:
                _tell_to_end(living)
        elif not open_input:
            select.select([], [], [], _WATCH_S)
        _reap(living)


def _fork(folder: Path, address: str, number: int, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        os.close(0)
        work(folder, address, number, seed)
    print(f"started {number} {pid}", flush=True)
    return pid


def _tell_to_end(living: set[int]) -> None:
    for pid in living:
        os.kill(pid, signal.SIGTERM)


def _reap(living: set[int]) -> None:
    for pid in list(living):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            living.discard(pid)
            print(f"ended {pid} {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
