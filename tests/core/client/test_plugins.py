"""A client tells a server's plugins from its own."""

from __future__ import annotations

import pytest
from tests.core.client.conftest import MakeClient
from tests.core.client.fake_server import FakeServer, until
from tests.engine_calls import TOKENS

from lmcache_core.registry import PluginSet
from lmcache_core.wire.messages import Hello, Welcome

OWN = PluginSet((("file", "lmcache-core", "0.1.0"), ("own", "acme", "1.0")))
THEIRS = PluginSet((("file", "lmcache-core", "0.2.0"),))


def welcome(server: FakeServer, plugins: PluginSet) -> None:
    def answer(message: Hello) -> Welcome:
        return Welcome(message.call, 1, "9.9", (), server.boot_id, server.number(), b"", "", 0, plugins.entries)

    server.on(Hello, answer)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "plugins" in message]


def test_says_its_own(make_client: MakeClient, server: FakeServer) -> None:
    make_client(plugins=OWN).lookup(TOKENS)

    assert [message.plugins for message in server.all(Hello)] == [OWN.entries]


def test_a_difference_is_a_warning(
    make_client: MakeClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    welcome(server, THEIRS)
    make_client(plugins=OWN).lookup(TOKENS)

    (warning,) = warnings(caplog)
    assert warning == (
        f"the cache server at {server.address} has other plugins ({THEIRS.digest}) than this process ({OWN.digest}): "
        "'own' of acme only here; lmcache-core is 0.1.0 here and 0.2.0 in the server; "
        "install the same packages for both"
    )


def test_the_same_difference_is_told_once(
    make_client: MakeClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    welcome(server, THEIRS)
    client = make_client(plugins=OWN)
    client.lookup(TOKENS)
    server.sessions.clear()
    server.boot_id = "boot-2"

    assert until(lambda: client.server.boot_id == "boot-2")
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("plugins", [OWN, PluginSet()])
def test_no_difference_is_no_warning(
    plugins: PluginSet, make_client: MakeClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    welcome(server, plugins)
    make_client(plugins=OWN).lookup(TOKENS)

    assert warnings(caplog) == []
