"""Before any handler: the token, and the size of the body."""

from __future__ import annotations

import hmac
import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs", "/redoc"})
MAX_BODY = 16 * 2**20


class Guard:
    """401 without the right bearer token, 413 for a body that is too large; neither is read any further."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if scope["path"] not in OPEN_PATHS and not hmac.compare_digest(
            headers.get(b"authorization", b""), self._expected
        ):
            extra = [(b"www-authenticate", b"Bearer")]
            await _refuse(send, 401, "authorization", "must be 'Bearer' and this silo's token", extra)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MAX_BODY:
            await _refuse(send, 413, "body", f"must be at most {MAX_BODY} bytes")
            return
        await self._app(scope, _Limited(receive), send)


class BodyTooLarge(Exception):
    """A body without a length that went on for too long."""


class _Limited:
    """Counts what arrives: a chunked body does not say its length beforehand."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._seen = receive, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > MAX_BODY:
            raise BodyTooLarge
        return message


async def _refuse(
    send: Send, status: int, field: str, message: str, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = json.dumps({"errors": [{"field": field, "message": message}]}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *(extra or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
