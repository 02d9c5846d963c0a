"""Opens sockets with redis-py: the only file that knows it.

redis-py resolves the host, connects and speaks TLS; `redis_connect_func` takes the place of its
handshake. That a connected `Connection` has its socket in `_sock` is no promise of redis-py; it has
been so in 5.0 to 8.1, and a test holds it.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

from lmcache_core import BackendError, BackendTimeoutError
from lmcache_plugins.redis.address import RedisAddress
from lmcache_plugins.redis.wire import Wire

_NO_TLS = "if its port does not speak TLS, write redis:// instead of rediss://"


def open_wire(address: RedisAddress, *, who: str, deadline: float) -> Wire:
    """Connect; speak TLS if the address says so; nothing is sent beyond that.

    Raises:
        BackendTimeoutError: No connection before the deadline or `connect_timeout_s`.
        BackendError: No connection.
    """
    import redis.backoff  # noqa: PLC0415 - optional, and slow to import
    import redis.retry  # noqa: PLC0415 - optional

    timeout_s = min(deadline - time.monotonic(), address.connect_timeout_s)
    if timeout_s <= 0:
        raise BackendTimeoutError(f"{who}: no time left to connect")
    connection = _connection(redis, address, timeout_s)
    try:
        connection.connect()
    except redis.exceptions.TimeoutError as error:
        hint = f"; {_NO_TLS}" if address.tls else ""
        raise BackendTimeoutError(f"{who}: no connection within {timeout_s:.3g} s{hint}") from error
    except (redis.exceptions.RedisError, OSError) as error:
        raise _failure(error, address, who) from error
    connected = connection._sock  # noqa: SLF001 - see the top of the file
    if not isinstance(connected, socket.socket):
        raise BackendError(f"{who}: this version of redis-py, {redis.__version__}, is not supported; install another")
    return Wire(connected, keeper=connection)


def _connection(redis: Any, address: RedisAddress, timeout_s: float) -> Any:
    shared = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "redis_connect_func": _no_handshake,
        "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        "protocol": 2,
    }
    if address.socket_path:
        return redis.UnixDomainSocketConnection(path=address.socket_path, **shared)
    if not address.tls:
        return redis.Connection(host=address.host, port=address.port, **shared)
    return redis.SSLConnection(
        host=address.host,
        port=address.port,
        ssl_ca_certs=str(address.ca_file) if address.ca_file else None,
        ssl_certfile=str(address.cert_file) if address.cert_file else None,
        ssl_keyfile=str(address.key_file) if address.key_file else None,
        ssl_cert_reqs="required",
        ssl_check_hostname=address.check_hostname,
        **shared,
    )


def _no_handshake(_connection: object) -> None:
    """Leave the first word to `session.py`, which keeps the deadline and reads into place."""


def _failure(error: Exception, address: RedisAddress, who: str) -> BackendError:
    cause = error.__context__ if isinstance(error.__context__, OSError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return BackendError(
            f"{who}: the server's certificate is not trusted: {cause.verify_message.lower()}; "
            "set extra_config.redis.ca_file, or mend the certificate"
        )
    if isinstance(cause, ssl.SSLError) and (cause.library != "SSL" or cause.reason == "PEM_LIB"):
        return BackendError(f"{who}: cannot use ca_file, cert_file or key_file: {_words(cause.reason)}")
    if address.tls and isinstance(cause, ssl.SSLError | ConnectionResetError):
        return BackendError(f"{who}: no TLS with the server: {_words(getattr(cause, 'reason', None))}; {_NO_TLS}")
    if isinstance(cause, socket.gaierror):
        return BackendError(f"{who}: the host name {address.host} cannot be resolved")
    reason = cause.strerror.lower() if isinstance(cause, OSError) and cause.strerror else type(cause).__name__
    return BackendError(f"{who}: cannot connect: {reason}")


def _words(reason: str | None) -> str:
    return (reason or "the connection was closed").replace("_", " ").lower()
