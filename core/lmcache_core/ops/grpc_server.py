"""The standard gRPC health service, ``grpc.health.v1.Health``; needs the extra ``grpc``."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lmcache_core.errors import ConfigError
from lmcache_core.ops.grpc_outbox import Outbox
from lmcache_core.ops.listen import listen, reason_of, with_port
from lmcache_core.ops.services import Services
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary

log = logging.getLogger(__name__)

_NAME = "grpc-health-thread"
_INTERVAL_S = 1.0  # a watcher learns so late, at most, what wakes nobody: a verdict that grows too old, a breaker
_INSTALL = "pip install 'lmcache-core[grpc]'"
_LINGER_S = 1.0  # of calls in flight when the server stops
_WORKERS = 2
_MOST_CALLS = 1000  # at once, watchers included; more are refused with RESOURCE_EXHAUSTED
_MOST_REQUEST_BYTES = 4096
_PING_MS = 60_000  # a client that answers no ping is gone: it would hold up what others are to hear, and a call's place
_PONG_MS = 20_000
_NOBODY = "\0"  # stands for every unknown name, so that a client that makes up names fills no memory


class GrpcHealthServer:
    """Answers ``Check`` and ``Watch``. A taken port costs this service, never the cache.

    Args:
        services: What to say.
        host: Address to listen on.
        port: 0 for any free one.
        threads: Where its thread is entered.

    Raises:
        ConfigError: The extra ``grpc`` is not installed; says how to install it.
    """

    def __init__(self, services: Services, *, host: str, port: int, threads: PeriodicThreadRegistry) -> None:
        try:
            for module in ("grpc", "grpc_health.v1"):
                importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"internal_grpc_port: the gRPC health service needs {error.name!r}; run: {_INSTALL}, "
                "or leave the key out"
            ) from error
        self._servicer = _Servicer(services)
        self._thread = _Feed(self._servicer, threads)
        self._host = host
        self._port = port
        self._server: Any = None
        self._address: str | None = None

    @property
    def address(self) -> str | None:
        """Where the service is, such as ``127.0.0.1:7999``; None while it is not served."""
        return self._address

    def start(self) -> None:
        """Listen and serve; a port that cannot be had is one warning, and `address` stays None."""
        import grpc  # noqa: PLC0415 - optional extra
        from grpc_health.v1 import health_pb2_grpc  # noqa: PLC0415 - optional extra

        try:
            # gRPC itself says of no failure what it was, and writes over the engine's output.
            listen(self._host, self._port).close()
            self._servicer.refresh()
            server = grpc.server(
                ThreadPoolExecutor(_WORKERS, thread_name_prefix="lmcache-grpc"),
                maximum_concurrent_rpcs=_MOST_CALLS,
                options=[
                    ("grpc.so_reuseport", 0),  # else two instances share a port, and each client meets either
                    ("grpc.max_receive_message_length", _MOST_REQUEST_BYTES),
                    ("grpc.keepalive_time_ms", _PING_MS),
                    ("grpc.keepalive_timeout_ms", _PONG_MS),
                ],
            )
            health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
            port = server.add_insecure_port(with_port(self._host, self._port))
        except (OSError, RuntimeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            log.warning(
                "internal_grpc: cannot listen on %s port %d (%s); the cache runs without the gRPC health service, "
                "choose another internal_grpc_port or 0 for any",
                self._host,
                self._port,
                reason,
            )
            return
        server.start()
        self._server = server
        self._address = with_port(self._host, port)
        self._thread.start()
        log.info("the gRPC health service is on %s", self._address)

    def wake(self) -> None:
        """Tell the watchers now: something has changed. Cheap; any thread."""
        self._thread.wake()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Tell every watcher that nothing serves any more, and stop; False when that took longer than `timeout_s`."""
        server, self._server = self._server, None
        if server is None:
            return True
        self._thread.stop(timeout_s)
        self._servicer.end()
        stopped: bool = server.stop(_LINGER_S).wait(timeout_s)
        self._servicer.close()
        self._address = None
        return stopped


class _Feed(PeriodicThread):
    """Brings changes to those who watch."""

    def __init__(self, servicer: _Servicer, registry: PeriodicThreadRegistry) -> None:
        super().__init__(_NAME, _INTERVAL_S, ThreadLevel.LOW, registry=registry)
        self._servicer = servicer

    def _execute(self) -> ThreadRunSummary:
        changed = self._servicer.refresh()
        return ThreadRunSummary(success=True, message=f"{changed} services changed")


class _Servicer:
    """The library's own servicer, told anew of each service before it answers."""

    def __init__(self, services: Services) -> None:
        from grpc_health.v1 import health, health_pb2  # noqa: PLC0415 - optional extra

        self._services = services
        self._inner = health.HealthServicer()
        self._outbox = Outbox()
        self._messages: Any = health_pb2
        self._serving = health_pb2.HealthCheckResponse.SERVING
        self._not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        self._lock = threading.Lock()
        self._told: dict[str, bool] = {}

    def refresh(self) -> int:
        """Take over what has changed, and tell the watchers; give how many services that are."""
        with self._lock:
            found = self._services.serving()
            changed = {name: serves for name, serves in found.items() if self._told.get(name) is not serves}
            for name, serves in changed.items():
                self._inner.set(name, self._serving if serves else self._not_serving)
            self._told = found
        return len(changed)

    def end(self) -> None:
        """Say NOT_SERVING of everything from now on."""
        self._inner.enter_graceful_shutdown()

    def close(self) -> None:
        """Tell nobody anything more."""
        self._outbox.close()

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """Answer once: SERVING, NOT_SERVING, or the error NOT_FOUND for a name that is no service."""
        self.refresh()
        if request.service not in self._told:
            context.set_details(f"no service {request.service!r}; known: {', '.join(map(repr, self._told))}")
        return self._inner.Check(request, context)

    def List(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - the protocol's name
        """Answer once for every service; older clients do not ask."""
        self.refresh()
        answer_of = self._messages.HealthCheckResponse
        statuses = {
            name: answer_of(status=self._serving if serves else self._not_serving)
            for name, serves in self._told.items()
        }
        return self._messages.HealthListResponse(statuses=statuses)

    def Watch(self, request: Any, context: Any, send_response_callback: Any) -> Any:  # noqa: N802 - the protocol's name
        """Answer now and with each change; SERVICE_UNKNOWN for a name that is no service."""
        self.refresh()
        known = request if request.service in self._told else self._messages.HealthCheckRequest(service=_NOBODY)
        return self._inner.Watch(known, _Leaving(context), self._outbox.behind(send_response_callback))

    Watch.experimental_non_blocking = True  # type: ignore[attr-defined] # a watcher then takes no thread


class _Leaving:
    """The part of gRPC's context that the library's servicer uses for a watcher.

    A client that has gone already is no reason for gRPC to call back: the library would keep its stream for ever.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def add_callback(self, left: Callable[[], None]) -> bool:
        """Have `left` called when the stream ends, or now where it has ended."""
        added: bool = self._context.add_callback(left)
        if not added:
            left()
        return added
