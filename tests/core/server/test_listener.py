"""Taking an address: stale sockets are replaced, live ones are a sentence."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lmcache_core.errors import ConfigError
from lmcache_core.server.listener import SocketFile, listen_on_port

HOLDER = """
import sys
from pathlib import Path
from lmcache_core.server.listener import SocketFile
file = SocketFile(Path(sys.argv[1]), "ipc://there")
listener = file.listen()
print("held", flush=True)
sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that serves at a path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_socket_is_this_users_alone(folder: Path) -> None:
    file = SocketFile(folder / "new" / "s.sock", "ipc://here")
    with file.listen():
        assert stat.S_IMODE((folder / "new" / "s.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o700
    file.close()


def test_sockets_are_removed_with_it(folder: Path) -> None:
    file = SocketFile(folder / "s.sock", "ipc://here")
    with file.listen(), file.listen(".life"):
        assert sorted(path.name for path in folder.iterdir()) == ["s.sock", "s.sock.life", "s.sock.lock"]
    file.close()

    assert [path.name for path in folder.iterdir()] == ["s.sock.lock"]


def test_the_socket_of_a_killed_process_is_replaced(folder: Path) -> None:
    path = folder / "s.sock"
    end(hold(path))
    assert path.exists()

    file = SocketFile(path, "ipc://here")
    with file.listen() as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        listener.accept()[0].close()
    file.close()


def test_a_path_that_another_process_holds_is_a_sentence(folder: Path) -> None:
    process = hold(folder / "s.sock")
    try:
        with pytest.raises(ConfigError) as caught:
            SocketFile(folder / "s.sock", "ipc://here")
    finally:
        end(process)

    assert str(caught.value) == (
        f"another server, pid {process.pid}, serves at ipc://here; stop it or set server_address"
    )


def test_a_socket_on_which_a_stranger_answers_is_a_sentence(folder: Path) -> None:
    path = folder / "s.sock"
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        stranger.listen()
        file = SocketFile(path, "ipc://here")
        with pytest.raises(ConfigError) as caught:
            file.listen()
        file.close()

    assert (
        str(caught.value) == f"another server, pid {os.getpid()}, serves at ipc://here; stop it or set server_address"
    )
    assert path.exists()


def test_a_file_in_the_way_is_left_alone(folder: Path) -> None:
    path = folder / "s.sock"
    path.write_text("precious")
    file = SocketFile(path, "ipc://here")

    with pytest.raises(ConfigError) as caught:
        file.listen()
    file.close()

    assert str(caught.value) == (
        f"server_address: ipc://here: {path} is there and is no socket; remove it or set server_address"
    )
    assert path.read_text() == "precious"


def test_a_folder_in_which_others_could_replace_the_socket_is_refused(folder: Path) -> None:
    folder.chmod(0o777)

    with pytest.raises(ConfigError) as caught:
        SocketFile(folder / "s.sock", "ipc://here")

    assert str(caught.value) == (
        f"server_address: ipc://here: {folder}: is a folder in which another user could replace the socket; "
        "choose one of your own"
    )


def test_a_folder_that_cannot_be_made_is_a_sentence(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SocketFile(folder / "a" / "b" / "s.sock", "ipc://here")

    assert str(caught.value) == f"server_address: ipc://here: {folder}/a/b: No such file or directory"


def test_a_taken_port_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listen_on_port(port)

    assert str(caught.value) == (
        f"another process serves at tcp://127.0.0.1:{port}, or the port is not ours (Address already in use); "
        "stop it or set server_address"
    )
