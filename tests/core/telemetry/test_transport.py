"""One post, one status, one deadline; against a real server."""

from __future__ import annotations

import base64
import socket
import time

import pytest
from tests.core.telemetry.collector import Collector

from lmcache_core import __version__
from lmcache_core.contracts.url import StoreURL
from lmcache_core.telemetry.transport import UsageMessageSender


def test_a_message_arrives_as_it_is(collector: Collector) -> None:
    assert UsageMessageSender(collector.url).send("cache-usage", b'{"a":1}') == ""
    path, headers, body = collector.requests[0]
    assert (path, body, headers["Content-Type"]) == ("/usage/cache-usage", b'{"a":1}', "application/json")
    assert headers["User-Agent"] == f"lmcache-core/{__version__}"


def test_the_request_shown_is_the_request_sent(collector: Collector) -> None:
    sender = UsageMessageSender(collector.url)
    shown = sender.request("context", b"{}")
    sender.send("context", b"{}")
    path, headers, body = collector.requests[0]

    assert (shown.target, shown.body) == (path, body)
    assert shown.url == f"http://127.0.0.1:{collector.port}/usage/context"
    assert {name: headers[name] for name in shown.headers} == shown.headers


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a_status_of_refusal_is_not_delivered(collector: Collector, status: int) -> None:
    """D.18"""
    collector.status = status
    assert UsageMessageSender(collector.url).send("context", b"{}") == f"http_{status}"


def test_a_redirect_is_not_followed(collector: Collector) -> None:
    collector.status, collector.location = 307, f"http://127.0.0.1:{collector.port}/elsewhere"
    assert UsageMessageSender(collector.url).send("context", b"{}") == "http_307"
    assert len(collector.requests) == 1


@pytest.mark.timing
def test_a_collector_that_never_answers_is_a_timeout(collector: Collector) -> None:
    collector.stall()
    started = time.monotonic()
    assert UsageMessageSender(collector.url, timeout_s=0.2).send("context", b"{}") == "timeout"
    assert time.monotonic() - started < 1.0


@pytest.mark.timing
def test_a_collector_that_answers_letter_by_letter_is_a_timeout_too(collector: Collector) -> None:
    collector.trickles = True
    started = time.monotonic()
    assert UsageMessageSender(collector.url, timeout_s=0.3).send("context", b"{}") == "timeout"
    assert time.monotonic() - started < 1.0


@pytest.mark.timing
def test_a_calls_own_deadline_is_kept_where_it_is_shorter(collector: Collector) -> None:
    collector.stall()
    started = time.monotonic()
    assert UsageMessageSender(collector.url).send("context", b"{}", timeout_s=0.1) == "timeout"
    assert time.monotonic() - started < 1.0


def test_a_closed_port_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    assert UsageMessageSender(StoreURL.parse(f"http://127.0.0.1:{port}")).send("context", b"{}") == "refused"


def test_a_name_that_nobody_has_is_dns() -> None:
    assert UsageMessageSender(StoreURL.parse("http://collector.invalid")).send("context", b"{}") == "dns"


def test_plain_text_where_tls_is_spoken_is_tls(collector: Collector) -> None:
    url = StoreURL.parse(f"https://127.0.0.1:{collector.port}")
    assert UsageMessageSender(url, timeout_s=2.0).send("context", b"{}") == "tls"


def test_credentials_go_into_a_header_and_nowhere_else(collector: Collector) -> None:
    url = StoreURL.parse(f"http://me:hunter2@127.0.0.1:{collector.port}")
    sender = UsageMessageSender(url)
    sender.send("context", b"{}")
    _, headers, _ = collector.requests[0]

    assert headers["Authorization"] == f"Basic {base64.b64encode(b'me:hunter2').decode()}"
    assert "hunter2" not in repr(sender.request("context", b"{}"))
