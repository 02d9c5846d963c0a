"""The HTTP server's thread."""

from __future__ import annotations

import importlib
import logging
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmcache_core.errors import ConfigError
from lmcache_core.ops.action import Action
from lmcache_core.ops.listen import listen, reason_of, with_port
from lmcache_core.ops.pages import Pages
from lmcache_core.ops.web import build_app

if TYPE_CHECKING:  # the optional extra http
    import uvicorn

log = logging.getLogger(__name__)

_LINGER_S = 1  # of open requests when the server stops
_INSTALL = "pip install 'lmcache-core[http]'"


class OpsServer:
    """Serves the pages on a daemon thread. A taken port costs the pages, never the cache.

    Args:
        pages: What to serve.
        host: Address to listen on; a loopback address unless other hosts shall read the pages.
        port: 0 for any free one.
        actions: Requests beside the pages, which change something.

    Raises:
        ConfigError: The extra ``http`` is not installed; says how to install it.
    """

    def __init__(
        self, pages: Pages, *, host: str = "127.0.0.1", port: int = 6999, actions: Sequence[Action] = ()
    ) -> None:
        try:
            for module in ("starlette", "uvicorn"):
                importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"internal_api_server_enabled: the HTTP pages need {error.name!r}; run: {_INSTALL}, or set it to false"
            ) from error
        self._pages = pages
        self._actions = tuple(actions)
        self._host = host
        self._port = port
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._address: str | None = None

    @property
    def address(self) -> str | None:
        """Where the pages are, such as ``http://127.0.0.1:6999``; None while they are not served."""
        return self._address

    def start(self) -> None:
        """Listen and serve; a port that cannot be had is one warning, and `address` stays None."""
        import uvicorn  # noqa: PLC0415 - optional extra

        try:
            listener = listen(self._host, self._port)
        except OSError as error:
            log.warning(
                "internal_api_server: cannot listen on %s port %d (%s); the cache runs without HTTP pages, "
                "choose another internal_api_server_port_start or 0 for any",
                self._host,
                self._port,
                reason_of(error),
            )
            return
        config = uvicorn.Config(
            build_app([*self._pages.actions(), *self._actions]),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_LINGER_S,
        )
        self._server = uvicorn.Server(config)
        host, port = listener.getsockname()[:2]
        self._address = f"http://{with_port(host, port)}"
        self._thread = threading.Thread(
            target=self._serve, args=(self._server, listener), name="lmcache-http", daemon=True
        )
        self._thread.start()
        log.info("HTTP pages are on %s", self._address)

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop serving; False when a request held that up for longer than `timeout_s`."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return True
        server.should_exit = True
        thread.join(timeout_s)
        self._address = None
        return not thread.is_alive()

    def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            server.run(sockets=[listener])
        except BaseException as error:  # the border of the web server: it must not print over the engine's output
            log.warning("the HTTP pages ended", exc_info=error)
        finally:
            self._address = None
            listener.close()
