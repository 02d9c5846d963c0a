"""The ASGI application behind the pages; needs the extra ``http``."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from lmcache_core.ops.action import Action, Call
from lmcache_core.ops.page import Page, refusal

if TYPE_CHECKING:  # the optional extra http
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


def build_app(actions: Iterable[Action]) -> Starlette:
    """Make an application that answers these requests and no other."""
    from starlette.applications import Starlette  # noqa: PLC0415 - optional extra

    return Starlette(routes=[_route(action) for action in actions])


def _route(action: Action) -> Route:
    from starlette.concurrency import run_in_threadpool  # noqa: PLC0415 - optional extra
    from starlette.responses import Response  # noqa: PLC0415 - optional extra
    from starlette.routing import Route  # noqa: PLC0415 - optional extra

    async def endpoint(request: Request) -> Response:
        body = await _body(request, action.most_body_bytes)
        if body is None:
            sentence = f"the body has more than {action.most_body_bytes} bytes"
            page = refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, {"connection": "close"})
        else:
            page = await run_in_threadpool(action.answer, _call(request, body))
        return Response(page.body, page.status, _headers(page))

    return Route(action.path, endpoint, methods=[action.method])


def _headers(page: Page) -> dict[str, str]:
    return {
        "cache-control": "no-store",
        "content-type": page.media_type,
        "x-content-type-options": "nosniff",
        **page.headers,
    }


def _call(request: Request, body: bytes) -> Call:
    return Call(
        path={name: str(value) for name, value in request.path_params.items()},
        query=dict(request.query_params),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
    )


async def _body(request: Request, most_bytes: int) -> bytes | None:
    parts: list[bytes] = []
    length = 0
    async for part in request.stream():
        length += len(part)
        if length > most_bytes:
            return None
        parts.append(part)
    return b"".join(parts)
