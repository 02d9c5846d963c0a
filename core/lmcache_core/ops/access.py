"""Who may change something over HTTP: whoever knows the token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus

from lmcache_core.ops.page import Page, refusal

_KEY = "internal_api_server_token"
_CHALLENGE = {"www-authenticate": "Bearer"}


class AccessToken:
    """Compares the token that a client sends, in constant time. Reading pages needs none.

    Args:
        token: What clients must send; ``""`` refuses every change.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'set' if self._token else 'none'})"

    def objection(self, headers: Mapping[str, str]) -> Page | None:
        """Refuse a request, or give None: it may go on.

        Args:
            headers: Of the request, names in lower case.
        """
        if not self._token:
            return refusal(
                HTTPStatus.FORBIDDEN,
                f"nothing can be changed over HTTP, as no token is configured; set {_KEY} "
                f"(or LMCACHE_{_KEY.upper()}) and send it as 'Authorization: Bearer <token>'",
            )
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not sent.strip():
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                f"a token is needed: send 'Authorization: Bearer <token>' with {_KEY}, or what its token file holds",
                _CHALLENGE,
            )
        if not hmac.compare_digest(sent.strip().encode("latin-1", "replace"), self._token):
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                f"the token is wrong: send {_KEY} of this instance, or what its token file holds",
                _CHALLENGE,
            )
        return None
