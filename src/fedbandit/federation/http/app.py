"""The ASGI application of a silo. Every bad request is a 4xx that names the field it is about."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any

import msgspec

from fedbandit._validate import ArgumentError
from fedbandit.federation.http import openapi
from fedbandit.federation.http.personalizer import PersonalizerProblems
from fedbandit.federation.http.refusals import REFUSED, Headers, Refusal, refusal
from fedbandit.federation.http.routes import JSON_MEDIA, Route, Router, page_routes, service_routes
from fedbandit.federation.http.schemas import Answer, Problems
from fedbandit.federation.http.service import Service
from fedbandit.federation.telemetry import logs, traces
from fedbandit.look import page_files

__all__ = ["MAX_BODY", "App", "create_app"]

log = logging.getLogger(__name__)
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY = 16 * 2**20
BODY_TIMEOUT = 30.0  # seconds
SUBSCRIPTION_KEY = b"ocp-apim-subscription-key"  # the header in which a Personalizer client shows the token
CLOSE = (b"connection", b"close")  # the rest of the request is not read
_encode = msgspec.json.Encoder().encode


def create_app(service: Service, token: str) -> App:
    """The application: the calls of the service, and their description at /openapi.json and /docs."""
    routes = service_routes(service)
    description = openapi.document(routes)
    as_json, as_page = _encode(description), openapi.page(description).encode()

    async def document() -> bytes:
        return as_json

    async def page() -> bytes:
        return as_page

    routes += page_routes(service.board)
    routes.append(Route("GET", "/openapi.json", document, token=False))
    routes.append(
        Route("GET", "/docs", page, token=False, media="text/html; charset=utf-8", headers=page_files.HEADERS)
    )
    return App(routes, token, service.refused)


class App:
    """Serves routes to callers who show the token. `refused` is called with every refusal."""

    def __init__(
        self, routes: list[Route], token: str, refused: Callable[[Refusal], None] = lambda refusal: None
    ) -> None:
        self._refused = refused
        self._router = Router(routes)
        # While traces are on, every request goes the long way, which has the span.
        straight = [] if traces.on() else [route for route in routes if route.at_once is not None]
        self._at_once = {route.path.encode(): route for route in straight}
        self._open = {route.path for route in routes if not route.token}
        if not token:
            raise ArgumentError("token", "must not be empty: everybody would be let in")
        self._expected, self._key = f"Bearer {token}".encode(), token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)
        else:
            await send({"type": "websocket.close"})

    def at_once(self, path: bytes, shown: list[tuple[bytes, bytes]], body: bytes) -> bytes | None:
        """The answer to a POST that needs no waiting. None for any other request and for a refused one: they are then
        handled over ASGI."""
        route, headers = self._at_once.get(path), dict(shown)
        if route is None or not self._shows_token(headers):
            return None
        try:
            answer = route.answer_at_once(headers.get(b"content-type", b""), body)
        except REFUSED:
            return None
        return None if answer is None else _encode(answer)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = dict(scope["headers"])
        request = logs.named(shown.get(logs.HEADER))
        logs.REQUEST.set(request.decode())
        named: Headers = [(logs.HEADER, request)]
        problems: type[Problems] | type[PersonalizerProblems] = Problems
        try:
            route, given = self._route(scope["method"], scope["path"], shown)
            problems = route.problems
            with traces.span(f"{route.method} {route.path}"):
                body = b"" if route.body is None else await _read(shown.get(b"content-length", b"0"), receive)
                status, content = _encoded(await route.answer(given, shown.get(b"content-type", b""), body))
            tag = _tag(content) if route.tagged else b""
            if tag and shown.get(b"if-none-match") == tag:
                status, content = 304, b""
            tags: Headers = [(b"etag", tag)] if tag else []
            await _respond(send, status, route.media, content, [*route.headers, *tags, *named])
        except REFUSED as error:
            await self._refuse(send, refusal(error), problems, named)
        except _Gone:
            pass
        except Exception:  # a bug: the caller is told so, and the server logs what it was
            await self._refuse(send, Refusal(500, "request", "failed here; the log says why"), problems, named)
            raise

    async def _refuse(
        self, send: Send, refused: Refusal, told: type[Problems] | type[PersonalizerProblems], named: Headers
    ) -> None:
        self._refused(refused)
        if refused.status >= 500:
            log.warning("answered %s", refused)
        content = _encode(told.about(refused.status, refused.problem, logs.REQUEST.get()))
        await _respond(send, refused.status, JSON_MEDIA, content, [*refused.headers, *named])

    def _route(self, method: str, path: str, shown: Mapping[bytes, bytes]) -> tuple[Route, dict[str, str]]:
        """The route of a request. Without the token a caller does not learn which paths exist."""
        if path not in self._open:
            self._check_token(shown)
        methods, given = self._router.find(path)
        if not methods:
            raise Refusal(404, "path", "is not served; /openapi.json describes those that are")
        if method not in methods:
            allowed = ", ".join(methods)
            raise Refusal(405, "method", f"must be {allowed}", [(b"allow", allowed.encode())])
        return methods[method], given

    def _shows_token(self, shown: Mapping[bytes, bytes]) -> bool:
        if hmac.compare_digest(shown.get(b"authorization", b""), self._expected):
            return True
        return hmac.compare_digest(shown.get(SUBSCRIPTION_KEY, b""), self._key)

    def _check_token(self, shown: Mapping[bytes, bytes]) -> None:
        if not self._shows_token(shown):
            challenge = (b"www-authenticate", b"Bearer")
            raise Refusal(401, "authorization", "must be 'Bearer' and this silo's token", [challenge, CLOSE])


class _Gone(Exception):
    """The caller closed the connection before the body had arrived."""


async def _read(declared: bytes, receive: Receive) -> bytes | bytearray:
    """The body of a request. Its size is also limited while it arrives: a chunked body does not declare its length."""
    if not declared.isdigit() or len(declared) > 20 or int(declared) > MAX_BODY:
        raise _too_large()
    async with _Deadline():
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                raise _too_large()
            if not message.get("more_body", False):
                return body


class _Deadline:
    """Limits the time for a body, like `asyncio.timeout` but at a third of its cost per request."""

    __slots__ = ("_late", "_task", "_timer")

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._late = task, False
        self._timer = asyncio.get_running_loop().call_later(BODY_TIMEOUT, self._end)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._late and self._task.uncancel() <= 0 and kind is asyncio.CancelledError:
            raise Refusal(408, "body", f"must arrive within {BODY_TIMEOUT:g} s", [CLOSE]) from None

    def _end(self) -> None:
        self._late = True
        self._task.cancel()


def _too_large() -> Refusal:
    return Refusal(413, "body", f"must be at most {MAX_BODY} bytes", [CLOSE])


def _encoded(answer: Answer | bytes) -> tuple[int, bytes]:
    return (200, answer) if isinstance(answer, bytes) else (answer.STATUS, _encode(answer))


def _tag(content: bytes) -> bytes:
    """The ETag of an answer: the same for the same bytes."""
    return b'"' + hashlib.blake2b(content, digest_size=12).hexdigest().encode() + b'"'


async def _respond(send: Send, status: int, media: str, content: bytes, extra: Headers = ()) -> None:
    headers = [(b"content-type", media.encode()), (b"content-length", str(len(content)).encode()), *extra]
    if status in (204, 304):  # these have no body and no headers about one
        headers, content = [*extra], b""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge startup and shutdown. There is nothing to do: whoever makes the service closes it."""
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})
