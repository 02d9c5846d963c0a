"""The folder of a worker's socket: its own, and gone when the worker is, however that ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lmcache_core.server.listener import SocketFile
from lmcache_plugins.vllm.socket_folder import make_socket_folder

_DIE = """
import os, signal
from lmcache_core.server.listener import SocketFile
from lmcache_plugins.vllm.socket_folder import make_socket_folder
folder = make_socket_folder()
held = SocketFile(folder / "rank0.sock", "ipc://rank0.sock")
held.listen()
print(folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def later() -> Callable[[], float]:
    """A clock that is an hour ahead."""
    return lambda: time.time() + 3600


def test_only_this_user_can_enter_it() -> None:
    assert make_socket_folder().stat().st_mode & 0o777 == 0o700


def test_what_a_killed_worker_left_is_removed(later: Callable[[], float]) -> None:
    ran = subprocess.run([sys.executable, "-c", _DIE], capture_output=True, text=True, timeout=60, check=False)
    left = Path(ran.stdout.strip())
    assert (left / "rank0.sock").exists(), ran.stderr
    make_socket_folder(later)

    assert not left.exists()


def test_that_of_a_worker_that_lives_stays(later: Callable[[], float]) -> None:
    folder = make_socket_folder()
    held = SocketFile(folder / "rank0.sock", "ipc://rank0.sock")
    make_socket_folder(later)
    held.close()

    assert folder.exists()


def test_one_whose_worker_is_just_starting_stays() -> None:
    folder = make_socket_folder()
    make_socket_folder()

    assert folder.exists()


def test_what_is_no_folder_stays(tmp_path: Path, later: Callable[[], float]) -> None:
    (tmp_path / "lmcache-vllm-notes").write_text("mine")
    (tmp_path / "lmcache-vllm-link").symlink_to(tmp_path, target_is_directory=True)
    make_socket_folder(later)

    assert {path.name for path in tmp_path.iterdir()} > {"lmcache-vllm-notes", "lmcache-vllm-link"}


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path: Path, later: Callable[[], float]) -> None:
    folder = make_socket_folder()
    (folder / "rank0.sock.lock").symlink_to(tmp_path / "elsewhere")
    make_socket_folder(later)

    assert folder.exists()
    assert not (tmp_path / "elsewhere").exists()
