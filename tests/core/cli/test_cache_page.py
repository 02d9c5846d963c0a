import os
from pathlib import Path

import pytest

from lmcache_core import ConfigError, LMCacheError
from lmcache_core.cli.cache_page import TOKEN_VARIABLE, CachePage, clean, in_path
from lmcache_core.ops.token import TokenFile


@pytest.fixture(autouse=True)
def _own_runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_the_token_is_where_a_cache_of_this_user_left_it() -> None:
    file = TokenFile()
    file.publish(4711)

    assert CachePage("127.0.0.1:4711").token(None) == file.token


def test_the_variable_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    TokenFile().publish(4711)
    monkeypatch.setenv(TOKEN_VARIABLE, "from-the-variable")

    assert CachePage("127.0.0.1:4711").token(None) == "from-the-variable"


def test_a_file_that_is_named_wins_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "from-the-variable")
    (tmp_path / "mine").write_text("from-the-file\n")

    assert CachePage("127.0.0.1:4711").token(tmp_path / "mine") == "from-the-file"


def test_a_local_token_is_never_sent_elsewhere() -> None:
    TokenFile().publish(4711)
    with pytest.raises(LMCacheError) as caught:
        CachePage("http://cache-1:4711").token(None)

    assert str(caught.value) == (
        "changing a running cache needs its token; run this as the user that runs the cache, set "
        "LMCACHE_INTERNAL_API_SERVER_TOKEN, or name the file with --token-file"
    )


def test_without_a_token_the_sentence_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(LMCacheError) as caught:
        CachePage("127.0.0.1:4711").token(None)

    assert f"; there is none in {tmp_path}/lmcache-core/token-4711 or " in str(caught.value)
    assert f"lmcache-core-{os.getuid()}/token-4711; run this as" in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LMCacheError) as caught:
        CachePage("127.0.0.1:4711").token(tmp_path / "nothing")

    assert str(caught.value) == f"token file {tmp_path}/nothing cannot be read: No such file or directory"


def test_credentials_in_an_address_are_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        CachePage("ftp://alice:canary@host")

    assert "canary" not in str(caught.value)


def test_names_are_quoted_in_a_path() -> None:
    assert in_path("a/b c?d") == "a%2Fb%20c%3Fd"


def test_what_came_over_the_wire_is_printable() -> None:
    assert (clean("a\x1b[2J\nb"), clean(None), clean(7)) == ("a?[2J?b", "", "7")
