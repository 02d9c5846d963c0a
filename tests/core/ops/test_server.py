import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lmcache_core import ConfigError

MakeSite = Callable[..., Any]


def test_port_0_takes_any_free_one_and_tells_which(site: MakeSite) -> None:
    one = site()
    port = int(one.server.address.rsplit(":", 1)[1])

    assert one.server.address == f"http://127.0.0.1:{port}"
    assert one.get("/livez").status == 200


def test_a_taken_port_is_one_warning_and_the_cache_goes_on(site: MakeSite, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one = site(port=port)
        one.tower.start()

    assert one.server.address is None
    assert one.tower.monitor.is_healthy()
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage() == (
        f"internal_api_server: cannot listen on 127.0.0.1 port {port} (Address already in use); the cache runs "
        "without HTTP pages, choose another internal_api_server_port_start or 0 for any"
    )


def test_a_host_that_is_not_ours_is_a_warning(site: MakeSite, caplog: pytest.LogCaptureFixture) -> None:
    one = site(host="192.0.2.1")

    assert one.server.address is None
    assert caplog.messages[0].startswith("internal_api_server: cannot listen on 192.0.2.1 port 0")


def test_two_instances_in_one_process_each_show_their_own(site: MakeSite) -> None:
    """In a peer a second instance overwrote the first one's module-level application."""
    up, down = site(), site(init_failed_reason="no room")
    for one in (up, down):
        one.tower.monitor.start()

    assert (up.get("/health").status, down.get("/health").status) == (200, 503)


def test_ipv6_loopback_where_the_machine_has_it(site: MakeSite) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        served = True
    except OSError:
        served = False
    address = site(host="::1").server.address

    assert (address is not None and address.startswith("http://[::1]:")) is served


def test_stop_frees_the_port(site: MakeSite) -> None:
    one = site()
    port = int(one.server.address.rsplit(":", 1)[1])
    stopped = one.server.stop()

    assert stopped
    assert one.server.address is None
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_stop_does_not_wait_for_an_idle_client(site: MakeSite) -> None:
    one = site()
    port = int(one.server.address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\n")

        assert one.server.stop()


def test_stop_before_start_is_no_error(site: MakeSite) -> None:
    one = site()
    one.server.stop()

    assert one.server.stop()


def test_its_thread_is_a_daemon(site: MakeSite) -> None:
    site()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lmcache-http"]

    assert thread.daemon


def test_without_the_extra_the_sentence_says_how_to_install_it(site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError) as caught:
        site()

    assert str(caught.value) == (
        "internal_api_server_enabled: the HTTP pages need 'uvicorn'; run: pip install 'lmcache-core[http]', "
        "or set it to false"
    )


def test_the_package_imports_no_web_framework() -> None:
    script = "import sys, lmcache_core.ops.server; print(sorted({'uvicorn', 'starlette'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
