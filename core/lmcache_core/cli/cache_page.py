"""Talks to the HTTP pages of a running cache; every way to fail is one sentence."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from lmcache_core.contracts.url import StoreURL
from lmcache_core.errors import ConfigError, LMCacheError, OverrideError
from lmcache_core.ops.token import token_files

DEFAULT_URL = "http://127.0.0.1:6999"
TIMEOUT_S = 2.0
TOKEN_VARIABLE = "LMCACHE_INTERNAL_API_SERVER_TOKEN"  # noqa: S105 - the name of the variable

_MOST_BYTES = 8 << 20
_ENABLE = "start the cache with internal_api_server_enabled = true, or name its address with --url"


class CachePage:
    """The pages at one address.

    Args:
        url: As the user wrote it; the scheme may be left out.

    Raises:
        ConfigError: It is no HTTP address.
    """

    def __init__(self, url: str) -> None:
        self.address = _base(url)

    def read(self, path: str, needs: Mapping[str, type]) -> dict[str, Any]:
        """Read a page of JSON.

        Args:
            path: Of the page.
            needs: Keys by which it is known, with their types.

        Raises:
            LMCacheError: Nobody answers, or it is another program's page.
        """
        page = f"{self.address}{path}"
        return _recognise(self._ask("GET", path), page.partition("?")[0], needs)

    def change(
        self, method: str, path: str, body: Mapping[str, object] | None, token: str, *, patience_s: float = 0.0
    ) -> dict[str, Any]:
        """Ask for a change.

        Args:
            method: ``POST`` or ``DELETE``.
            path: Of the page.
            body: JSON values, or None.
            token: That allows it.
            patience_s: Longer than usual that the answer may take.

        Raises:
            OverrideError: The cache says that the order is wrong.
            LMCacheError: It refuses for another reason, or nobody answers.
        """
        return self._ask(method, path, body, token, patience_s)

    def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, token: str = "", patience_s: float = 0.0
    ) -> dict[str, Any]:
        page = f"{self.address}{path}".partition("?")[0]
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, method=method)  # noqa: S310 - _base allows http only
        if token:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        timeout_s = TIMEOUT_S + patience_s
        # Never through a proxy: the pages are on a loopback or private address.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                return _parsed(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return _refused(error, page)
        except TimeoutError:
            raise LMCacheError(f"no answer from {page} within {timeout_s:g} s; {_ENABLE}") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise LMCacheError(f"no answer from {page} within {timeout_s:g} s; {_ENABLE}") from None
            reason = getattr(error.reason, "strerror", None) or str(error.reason)
            raise LMCacheError(f"no cache answers at {page}: {reason.lower()}; {_ENABLE}") from None
        except (OSError, http.client.HTTPException) as error:
            raise LMCacheError(f"no cache answers at {page}: {type(error).__name__}; {_ENABLE}") from None

    def token(self, file: Path | None) -> str:
        """Find the token: in the file that is named, in the variable, or where a cache of this user leaves it.

        Raises:
            LMCacheError: There is none; says where it was looked for.
        """
        if file is not None:
            return _token_in(file)
        if os.environ.get(TOKEN_VARIABLE):
            return os.environ[TOKEN_VARIABLE]
        parts = urlsplit(self.address)
        places = token_files(parts.port or http.client.HTTP_PORT) if _is_loopback(parts.hostname or "") else ()
        for place in places:
            if place.is_file() and os.access(place, os.R_OK):
                return _token_in(place)
        looked = f"; there is none in {' or '.join(map(str, places))}" if places else ""
        raise LMCacheError(
            f"changing a running cache needs its token{looked}; run this as the user that runs the cache, set "
            f"{TOKEN_VARIABLE}, or name the file with --token-file"
        )


def in_path(text: str) -> str:
    """Write a name into a path."""
    return quote(text, safe="")


def clean(value: object) -> str:
    """Write a value that came over the wire: it must not steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value if value is not None else ""))


def _base(url: str) -> str:
    try:
        address = StoreURL.parse(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise ConfigError(f"--url: {error}") from None
    if address.scheme not in {"http", "https"} or not address.host:
        raise ConfigError(f"--url: {address} is no HTTP address; write http://host:port, such as {DEFAULT_URL}")
    return str(address).rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token_in(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LMCacheError(f"token file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _refused(error: urllib.error.HTTPError, page: str) -> dict[str, Any]:
    """Give the body of a page that is meant to be 503; raise what any other status says."""
    answer = _parsed(error.read(_MOST_BYTES))
    if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
        return answer
    sentence = answer.get("error")
    if isinstance(sentence, str):
        kind = OverrideError if error.code in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND} else LMCacheError
        raise kind(clean(sentence)) from None
    raise LMCacheError(f"{page} answers {error.code} and is no cache's health page; {_ENABLE}") from None


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def _recognise(answer: dict[str, Any], page: str, needs: Mapping[str, type]) -> dict[str, Any]:
    if all(isinstance(answer.get(key), kind) for key, kind in needs.items()):
        return answer
    raise LMCacheError(f"{page} is no cache's health page; {_ENABLE}")
