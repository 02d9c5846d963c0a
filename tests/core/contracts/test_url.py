from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.contracts.url import StoreURL


def test_every_part_is_read() -> None:
    url = StoreURL.parse("Redis://user:secret@Cache-1:6379/2?ttl=5")

    assert (url.scheme, url.host, url.port, url.username, url.password, url.path, url.query) == (
        "redis",
        "cache-1",
        6379,
        "user",
        "secret",
        "/2",
        (("ttl", "5"),),
    )


def test_shown_address_has_no_credentials() -> None:
    url = StoreURL.parse("redis://user:secret@cache-1:6379/2?token=t0ken")

    assert str(url) == "redis://cache-1:6379/2"
    assert "secret" not in repr(url)
    assert "t0ken" not in repr(url)


@given(st.text(min_size=1).filter(lambda text: text.strip() == text))
def test_percent_encoded_password_is_decoded(password: str) -> None:
    try:
        encoded = quote(password, safe="")
    except UnicodeEncodeError:
        return

    assert StoreURL.parse(f"redis://:{encoded}@h/").password == password


def test_ipv6_host_keeps_its_brackets_when_shown() -> None:
    url = StoreURL.parse("redis://[::1]:6379")

    assert (url.host, url.port, str(url)) == ("::1", 6379, "redis://[::1]:6379")


def test_file_path_is_kept() -> None:
    assert StoreURL.parse("file:///var/kv cache").path == "/var/kv cache"


@pytest.mark.parametrize("text", ["", "localhost:6379", "://x", "1a://x", "redis:/x"])
def test_address_without_scheme_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        StoreURL.parse(text)

    assert str(caught.value) == ("a store's address starts with scheme://, such as redis://host:6379 or file:///path")


@pytest.mark.parametrize(
    "text",
    ["redis://u:canary@h:99999", "redis://u:canary@h:6379:6379", "redis://u:canary@h:0", "redis://u:[canary@h:x"],
)
def test_wrong_port_is_refused_without_the_password(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        StoreURL.parse(text)

    assert str(caught.value) == (
        "the redis:// address has no valid port (1 to 65535) or host; write scheme://user:password@host:port once, "
        "and percent-encode '#', '/', '?', '@', '[' and ']' in a password"
    )
    assert caught.value.__cause__ is None


def test_unencoded_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError) as caught:
        StoreURL.parse("redis://u:can#ary@h:1")

    assert str(caught.value) == (
        "the redis:// address has a '#'; write %23, and percent-encode '/', '?' and '@' in a password"
    )
