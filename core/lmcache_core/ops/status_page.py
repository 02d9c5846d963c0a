"""The page at ``/``: one file with its own style and script, and a policy that lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
import re
from http import HTTPStatus
from importlib.resources import files

from lmcache_core.ops.page import Page

_BLOCK = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


class StatusPage:
    """Reads the file once and works out its policy from the very bytes that are sent."""

    def __init__(self) -> None:
        text = (files("lmcache_core.ops") / "status.html").read_text(encoding="utf-8")
        self._page = Page(
            HTTPStatus.OK,
            "text/html; charset=utf-8",
            text.encode(),
            {"content-security-policy": _policy(text), "referrer-policy": "no-referrer", "x-frame-options": "DENY"},
        )

    def page(self) -> Page:
        """Give it."""
        return self._page


def _policy(text: str) -> str:
    hashes = {kind: _hash(body) for kind, body in _BLOCK.findall(text)}
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src '{hashes['style']}'",
            f"script-src '{hashes['script']}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def _hash(body: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}"
