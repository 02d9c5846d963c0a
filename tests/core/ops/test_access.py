import json

import pytest

from lmcache_core.ops.access import AccessToken

TOKEN = "correct horse battery"


def said(token: str, authorization: str | None) -> tuple[int, str] | None:
    headers = {} if authorization is None else {"authorization": authorization}
    page = AccessToken(token).objection(headers)
    return None if page is None else (page.status.value, json.loads(page.body)["error"])


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_the_token_opens(authorization: str) -> None:
    assert said(TOKEN, authorization) is None


@pytest.mark.parametrize("authorization", [None, "", TOKEN, "Bearer", "Bearer ", f"Basic {TOKEN}"])
def test_without_a_token_it_is_401_and_says_what_to_send(authorization: str | None) -> None:
    assert said(TOKEN, authorization) == (
        401,
        "a token is needed: send 'Authorization: Bearer <token>' with internal_api_server_token, or what its token file holds",
    )


@pytest.mark.parametrize("sent", ["wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "schlüssel", "\U0001f511"])
def test_a_wrong_token_is_401_and_never_shown(sent: str) -> None:
    assert said(TOKEN, f"Bearer {sent}") == (
        401,
        "the token is wrong: send internal_api_server_token of this instance, or what its token file holds",
    )


@pytest.mark.parametrize("authorization", [None, "Bearer ", f"Bearer {TOKEN}"])
def test_where_there_is_none_nothing_opens(authorization: str | None) -> None:
    assert said("", authorization) == (
        403,
        "nothing can be changed over HTTP, as no token is configured; set internal_api_server_token (or LMCACHE_INTERNAL_API_SERVER_TOKEN) and send it as 'Authorization: Bearer <token>'",
    )


@pytest.mark.parametrize(("token", "shown"), [(TOKEN, "AccessToken(set)"), ("", "AccessToken(none)")])
def test_its_repr_does_not_show_the_token(token: str, shown: str) -> None:
    assert repr(AccessToken(token)) == shown


def test_401_has_a_challenge() -> None:
    page = AccessToken(TOKEN).objection({})

    assert page is not None
    assert page.headers == {"www-authenticate": "Bearer"}
