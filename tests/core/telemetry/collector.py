"""A real HTTP server in the part of the operator's collector, and the ways it can fail."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from lmcache_core.contracts.url import StoreURL


class Collector:
    """Keeps what it gets.

    `status` is what it answers; while `stalled` is set it reads the request and says nothing, and
    with `trickles` it says one letter at a time.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 204
        self.location = ""
        self.trickles = False
        self.go_on = threading.Event()
        self.go_on.set()
        self.arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> StoreURL:
        return StoreURL.parse(f"http://127.0.0.1:{self.port}/usage")

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [payload for payload in self.payloads if payload["message_type"] == name]

    def wait_for(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.of(name)) >= count, 10), (name, self.payloads)
        return self.of(name)

    def stall(self) -> None:
        self.go_on.clear()

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with collector.arrived:
                collector.requests.append((self.path, dict(self.headers), body))
                collector.arrived.notify_all()
            collector.go_on.wait(30)
            try:
                if collector.trickles:
                    for _ in range(100):
                        self.wfile.write(b"H")
                        threading.Event().wait(0.02)
                self.send_response(collector.status)
                if collector.location:
                    self.send_header("Location", collector.location)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
