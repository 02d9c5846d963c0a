"""Addresses, users, passwords and TLS, against real servers where a server is meant."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from pydantic import ValidationError
from tests.plugins.redis.conftest import MakeBackend
from tests.redis_server import RedisServer

from lmcache_core import BackendError, ConfigError, StoreURL
from lmcache_core.testing.storage import make_frame, make_key, soon
from lmcache_plugins.redis.address import RedisAddress
from lmcache_plugins.redis.settings import RedisSettings

PASSWORDS = ["p@ss", "a#b/c?d&e=f%25", "[x]", "日本", "with space", "'\"\\`$", "%41"]


def address(text: str, **settings: object) -> RedisAddress:
    return RedisAddress.of(StoreURL.parse(text), RedisSettings(**settings))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("redis://cache-1", ("cache-1", 6379, "", False, 0)),
        ("valkey://cache-1:7000/3", ("cache-1", 7000, "", False, 3)),
        ("rediss://cache-1:7000/?db=4", ("cache-1", 7000, "", True, 4)),
        ("valkeys://[::1]:7000", ("::1", 7000, "", True, 0)),
        ("unix:///run/redis.sock", ("", 6379, "/run/redis.sock", False, 0)),
        ("redis+unix:///run/redis.sock?db=2", ("", 6379, "/run/redis.sock", False, 2)),
    ],
)
def test_an_address_is_read(text: str, facts: tuple[object, ...]) -> None:
    read = address(text)

    assert (read.host, read.port, read.socket_path, read.tls, read.db) == facts


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("redis:///0", "redis:///0: names no host; write redis://host:6379"),
        ("redis://h/mine", "redis://h/mine: the database must be a number such as 0, got 'mine'"),
        ("redis://h?db=-1", "redis://h: the database must be a number such as 0, got '-1'"),
        ("redis://h?password=secret", "redis://h: unknown option 'password'; the only one is db=<number>"),
        ("unix://host/x", "unix://host/x: names no socket; write unix:///path/of/redis.sock"),
        ("unix://", "unix://: names no socket; write unix:///path/of/redis.sock"),
    ],
)
def test_a_wrong_address_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        address(text)

    assert str(caught.value) == sentence


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        address("rediss://h", ca_file=tmp_path / "ca.pem")

    assert str(caught.value) == f"extra_config.redis.ca_file: there is no file {tmp_path}/ca.pem"


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="cert_file and key_file must be given together"):
        RedisSettings(cert_file="client.pem")


def test_no_password_shows(caplog: pytest.LogCaptureFixture) -> None:
    read = address("redis://alice:planted-secret@h", username="bob")

    assert read.password == "planted-secret"
    assert "planted-secret" not in repr(read) + str(read)


@pytest.mark.parametrize("password", PASSWORDS)
def test_the_default_users_password_opens_the_server(connect: MakeBackend, password: str) -> None:
    with RedisServer(password=password) as server:
        connect(server.url).ping(deadline=soon())
        connect(f"redis://{server.host}:{server.port}", password=password).ping(deadline=soon())
        connect(server.unix_url).ping(deadline=soon())


def test_every_password_of_an_acl_user_opens_the_server(connect: MakeBackend) -> None:
    users = {f"user{number}": password for number, password in enumerate(PASSWORDS)}
    with RedisServer(password="other", users=users) as server:
        at = f"{server.host}:{server.port}"
        for user, password in users.items():
            connect(f"redis://{user}:{quote(password, safe='')}@{at}").ping(deadline=soon())
            connect(f"redis://{at}", username=user, password=password).ping(deadline=soon())


def test_every_password_opens_a_server_with_tls(connect: MakeBackend) -> None:
    users = {f"user{number}": password for number, password in enumerate(PASSWORDS)}
    with RedisServer(tls=True, users=users) as server:
        for user, password in users.items():
            url = f"rediss://{user}:{quote(password, safe='')}@{server.host}:{server.port}"
            connect(url, ca_file=server.ca_file).ping(deadline=soon())


def refusal(connect: MakeBackend, url: str, **settings: object) -> str:
    """Ping a server that will not have us; its sentence without the store's name."""
    with pytest.raises(BackendError) as caught:
        connect(url, **settings).ping(deadline=soon())
    who, _, sentence = str(caught.value).partition(": ")
    assert who == f"RemoteBackend at {StoreURL.parse(url)}"
    return sentence


def test_a_wrong_password_is_told_without_it(connect: MakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RedisServer(password="right") as server:
        url = f"redis://:planted-secret@{server.host}:{server.port}"
        sentence = refusal(connect, url)

    assert sentence == "the server refused the user name or password"
    assert "planted-secret" not in caplog.text


def test_a_missing_password_is_told(connect: MakeBackend) -> None:
    with RedisServer(password="right") as server:
        sentence = refusal(connect, f"redis://{server.host}:{server.port}")

    assert sentence == "the server wants a password; set it in the address or in extra_config.redis.password"


def test_a_password_too_many_is_told(connect: MakeBackend, redis_server: RedisServer) -> None:
    sentence = refusal(connect, f"redis://:planted-secret@{redis_server.host}:{redis_server.port}")

    assert sentence == "the server has no password for this user; remove it from the configuration"


def test_a_database_too_many_is_told(connect: MakeBackend, redis_server: RedisServer) -> None:
    assert refusal(connect, f"{redis_server.url}/99") == "the server has no database of that number"


def test_databases_are_kept_apart(connect: MakeBackend, redis_server: RedisServer) -> None:
    connect(f"{redis_server.url}/1").store([(make_key(0), make_frame(0, 100))], deadline=soon())

    assert connect(f"{redis_server.url}/1").contains([make_key(0)], deadline=soon()) == 1
    assert connect(redis_server.url).contains([make_key(0)], deadline=soon()) == 0


def test_the_documented_rights_are_enough(connect: MakeBackend) -> None:
    rights = "~lmcache:* resetchannels -@all +ping +info +echo +exists +get +getrange +set +pexpire +unlink"
    with RedisServer(password="other", acl=[f"user kv on >secret {rights}"]) as server:
        backend = connect(f"redis://kv:secret@{server.host}:{server.port}", ttl_s=60)
        items = [(make_key(0), make_frame(0, 3_000_000))]
        backend.store(items, deadline=soon())
        backend.store(items, deadline=soon())

        assert backend.contains([make_key(0)], deadline=soon()) == 1
        assert backend.delete([make_key(0)], deadline=soon()) == 1
        backend.ping(deadline=soon())


def test_a_user_without_info_can_work(connect: MakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with RedisServer(password="other", acl=["user kv on >secret ~* +@all -info"]) as server:
        backend = connect(f"redis://kv:secret@{server.host}:{server.port}")
        backend.ping(deadline=soon())

        assert backend.usage().bytes_used == -1
    assert [record.getMessage() for record in caplog.records] == [
        f"RemoteBackend at redis://127.0.0.1:{server.port}: the user may not read INFO, so memory and eviction policy are unknown"
    ]


def test_a_missing_right_is_named(connect: MakeBackend) -> None:
    with RedisServer(password="other", acl=["user kv on >secret ~* +@all -exists"]) as server:
        backend = connect(f"redis://kv:secret@{server.host}:{server.port}")

        with pytest.raises(BackendError) as caught:
            backend.contains([make_key(0)], deadline=soon())

    assert str(caught.value) == (
        f"RemoteBackend at redis://127.0.0.1:{server.port}: the user lacks a right "
        "(noperm user kv has no permissions to run the 'exists' command); see the list in the reference"
    )


def test_plain_against_tls_says_tls(connect: MakeBackend) -> None:
    with RedisServer(tls=True) as server:
        sentence = refusal(connect, f"redis://{server.host}:{server.port}")

    assert sentence.endswith("; if its port speaks TLS, write rediss:// instead of redis://")


def test_tls_against_plain_says_tls(connect: MakeBackend, redis_server: RedisServer) -> None:
    sentence = refusal(connect, f"rediss://{redis_server.host}:{redis_server.port}", connect_timeout_s=0.5)

    assert sentence.endswith("; if its port does not speak TLS, write redis:// instead of rediss://")


def test_an_unknown_authority_is_not_trusted(connect: MakeBackend) -> None:
    with RedisServer(tls=True) as server:
        sentence = refusal(connect, server.url)

    assert sentence == (
        "the server's certificate is not trusted: unable to get local issuer certificate; "
        "set extra_config.redis.ca_file, or mend the certificate"
    )


def test_a_certificate_of_another_host_is_not_trusted(connect: MakeBackend) -> None:
    with RedisServer(tls=True, hosts=("cache-1",)) as server:
        sentence = refusal(connect, server.url, ca_file=server.ca_file)

        assert sentence == (
            "the server's certificate is not trusted: ip address mismatch, certificate is not valid for '127.0.0.1'.; "
            "set extra_config.redis.ca_file, or mend the certificate"
        )
        connect(server.url, ca_file=server.ca_file, check_hostname=False).ping(deadline=soon())


def test_a_client_certificate_opens_the_server(connect: MakeBackend, tmp_path: Path) -> None:
    with RedisServer(tls=True, client_certificates=True) as server:
        cert_file, key_file = server.issue_client_certificate()

        connect(server.url, ca_file=server.ca_file, cert_file=cert_file, key_file=key_file).ping(deadline=soon())


def test_a_missing_client_certificate_is_told(connect: MakeBackend) -> None:
    with RedisServer(tls=True, client_certificates=True) as server:
        sentence = refusal(connect, server.url, ca_file=server.ca_file)

    assert "cert_file" in sentence


def test_a_file_that_is_no_certificate_is_told(connect: MakeBackend, tmp_path: Path) -> None:
    nonsense = tmp_path / "ca.pem"
    nonsense.write_text("nonsense")
    with RedisServer(tls=True) as server:
        sentence = refusal(connect, server.url, ca_file=nonsense)

    assert sentence == "cannot use ca_file, cert_file or key_file: no certificate or crl found"


def test_an_unknown_host_is_told(connect: MakeBackend) -> None:
    assert refusal(connect, "redis://no-such-host.invalid") == "the host name no-such-host.invalid cannot be resolved"


def test_a_missing_socket_is_told(connect: MakeBackend, tmp_path: Path) -> None:
    assert refusal(connect, f"unix://{tmp_path}/none.sock") == "cannot connect: no such file or directory"


def test_cluster_mode_is_told(connect: MakeBackend) -> None:
    with RedisServer(options=["--cluster-enabled", "yes"]) as server:
        sentence = refusal(connect, server.url)

    assert sentence == "the server runs in cluster mode, which is not supported yet; name a standalone server"


def test_trust_comes_from_the_given_authority_alone(connect: MakeBackend, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    with RedisServer(tls=True) as server:
        sentence = refusal(connect, server.url, ca_file=other)

    assert sentence.startswith("the server's certificate is not trusted: ")
