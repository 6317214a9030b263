"""The two calls of every user, answered before routing and middleware: they are most of a silo's work.

Same service, same refusals as the routes of the application, which describe them and answer everything else.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from fedbandit.federation.http.refusals import CAUGHT, as_json
from fedbandit.federation.http.service import Service

DECIDE = "/v1/decisions"
BEFORE, AFTER = "/v1/decisions/", "/reward"


class FastPath:
    """POST /v1/decisions and POST /v1/decisions/{id}/reward; the rest goes on to the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or scope["method"] != "POST" or not path.startswith(DECIDE):
            await self._app(scope, receive, send)
        elif path == DECIDE:
            await self._answer(None, receive, send)
        elif path.startswith(BEFORE) and path.endswith(AFTER) and "/" not in (decision := _between(path)):
            await self._answer(decision, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, decision: str | None, receive: Receive, send: Send) -> None:
        try:
            body = await _body(receive)
            service = self._service
            content = await (service.decide(body) if decision is None else service.reward(decision, body))
            status = 200
        except CAUGHT as error:
            status, content = as_json(error)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _between(path: str) -> str:
    return path[len(BEFORE) : -len(AFTER)]


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
