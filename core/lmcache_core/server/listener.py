"""Taking an address, so that two servers never share one and what a dead one left is replaced."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
from pathlib import Path

from lmcache_core.errors import ConfigError
from lmcache_core.runtime_dir import make_private
from lmcache_core.wire.address import LOOPBACK

_PROBE_TIMEOUT_S = 1.0
_BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_MOST_PID_BYTES = 20


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Give process id, 0 where it cannot be seen from here, and user id of the other end of a Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _group = _CREDENTIALS.unpack(raw)
    return pid, user


def name_of(connection: socket.socket) -> str:
    """Say who the other end of a connection is, for sentences."""
    try:
        if connection.family == socket.AF_UNIX:
            pid, user = peer_of(connection)
            return f"process {pid} of user {user}"
        host, port = connection.getpeername()[:2]
    except OSError:
        return "a client that has gone"
    return f"the client at {host}:{port}"


class SocketFile:
    """A path for Unix sockets, held by a lock for as long as this process lives.

    The kernel lets go of the lock when the process ends, however that happens, so that a path whose lock
    can be had belongs to nobody and whatever sockets are left there may be replaced.

    Args:
        path: Where; its folder is made if need be.
        address: As the user knows it, for sentences.

    Raises:
        ConfigError: Another process holds it, or it cannot be used; says which.
    """

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        self._address = address
        self._made: list[Path] = []
        try:
            _check_folder(path.parent)
            self._lock = self._take_lock()
        except OSError as error:
            raise ConfigError(f"server_address: {address}: {path.parent}: {error.strerror or error}") from error

    def listen(self, suffix: str = "") -> socket.socket:
        """Listen at the path with this suffix; only this user can connect.

        Raises:
            ConfigError: Somebody answers there, a file is in the way, or the system refuses; says which.
        """
        place = self._path.with_name(self._path.name + suffix)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._clear_the_way(place)
            listener.bind(str(place))
            self._made.append(place)
            place.chmod(0o600)  # before `listen`: nobody can have connected yet
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise ConfigError(f"server_address: {self._address}: {place}: {error.strerror or error}") from error
        except ConfigError:
            listener.close()
            raise
        return listener

    def close(self) -> None:
        """Remove the sockets and let go of the path."""
        for place in self._made:
            place.unlink(missing_ok=True)
        os.close(self._lock)

    def disown(self) -> None:
        """In a forked child: let go of its copy of the lock, which is the parent's."""
        os.close(self._lock)

    def _take_lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self._path.with_name(self._path.name + ".lock"), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, _MOST_PID_BYTES, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise self._taken(holder or "unknown") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock

    def _clear_the_way(self, path: Path) -> None:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise ConfigError(
                f"server_address: {self._address}: {path} is there and is no socket; remove it or set server_address"
            )
        holder = _who_answers(path)
        if holder is not None:
            raise self._taken(str(holder))
        path.unlink(missing_ok=True)

    def _taken(self, holder: str) -> ConfigError:
        return ConfigError(f"another server, pid {holder}, serves at {self._address}; stop it or set server_address")


def listen_on_port(port: int) -> socket.socket:
    """Listen on loopback; port 0 takes any free one.

    Raises:
        ConfigError: The port is taken or not ours.
    """
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise ConfigError(
            f"another process serves at tcp://{LOOPBACK}:{port}, or the port is not ours "
            f"({os.strerror(error.errno or 0)}); stop it or set server_address"
        ) from error


def _check_folder(folder: Path) -> None:
    """Make the folder private, or take one in which nobody else can replace our files."""
    if not folder.is_dir():
        make_private(folder)
        return
    found = folder.stat()
    others_write = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if found.st_uid not in {0, os.getuid()} or others_write:
        raise PermissionError(0, "is a folder in which another user could replace the socket; choose one of your own")


def _who_answers(path: Path) -> int | None:
    """Give the process id of whoever listens at a socket file; None where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        except OSError:
            return 0  # somebody is there who does not come to answer
        return peer_of(probe)[0]
