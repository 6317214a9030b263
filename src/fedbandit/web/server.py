"""A small server for pages on this machine. It changes nothing, and refuses requests that other sites cause.

Python's own server is enough: few people look, from the same machine or through a tunnel, and it needs no extra
package. A page elsewhere could make a browser send requests here. Such requests name another host (DNS rebinding) or
say that they come from another site, so they can be refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from fedbandit._validate import ArgumentError
from fedbandit.look import page_files

__all__ = ["Calls", "EventStream", "PageServer", "Reply", "Visit", "as_json"]

log = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
JSON, EVENTS = "application/json", "text/event-stream"
IDLE = 30.0  # seconds that a connection may stay silent
LONGEST = 4096  # characters of a request's path and query


class Visit(NamedTuple):
    """A request."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    gone: Callable[[], bool]  # whether the client has left


class Reply(NamedTuple):
    """An answer."""

    body: bytes
    media: str = JSON
    status: int = 200
    headers: Mapping[str, str] = {}


class EventStream(NamedTuple):
    """An answer in pieces: a stream of events, each a value that is sent as JSON."""

    events: Iterator[Any]


Calls = Mapping[str, Callable[[Visit], Reply | EventStream]]  # by path


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    """A value as JSON."""
    return Reply(json.dumps(value, allow_nan=False, separators=(",", ":")).encode(), JSON, status, headers)


class PageServer(ThreadingHTTPServer):
    """Serves a page, its files and its calls."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, page: str, calls: Calls) -> None:
        self.page, self.calls, self.host = page, calls, host
        self._open = set[Any]()  # connections
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.server_address[1]}/"

    def known_as(self, host: str) -> bool:
        """Whether this is one of the server's own names."""
        port = self.server_address[1]
        own = {self.host, f"[{self.host}]", *LOOPBACK}
        return host.lower() in {f"{name}:{port}" for name in own} | (own if port == 80 else set())

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the server, and with it the connections that browsers keep open and the streams."""
        super().server_close()
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection was lost", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fedbandit", ""
    timeout = IDLE

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        refused = self._refused(headers)
        if refused is not None:
            self._send(refused)
            return
        visit = Visit(dict(parse_qsl(split.query, keep_blank_values=True)), headers, self._gone)
        self._send(self._answer(split.path, visit))

    do_HEAD = do_GET

    def _refused(self, headers: Mapping[str, str]) -> Reply | None:
        if not self.server.known_as(headers.get("host", "")):
            return _problem(421, "host", f"must be this server's own name, such as {self.server.url}")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _problem(403, "origin", "must be this server's own page")
        return _problem(414, "path", "is too long") if len(self.path) > LONGEST else None

    def _answer(self, path: str, visit: Visit) -> Reply | EventStream:
        name = self.server.page if path == "/" else path.removeprefix(page_files.ASSETS)
        found = page_files.asset(name) if path == "/" or path.startswith(page_files.ASSETS) else None
        if found is not None:
            return Reply(*found)
        call = self.server.calls.get(path)
        if call is None:
            return _problem(404, "path", "is not served")
        try:
            return call(visit)
        except ArgumentError as error:
            return _problem(422, error.field, error.message)
        except (OverflowError, MemoryError) as error:
            return _problem(422, "size", f"is too large to be computed here: {error or type(error).__name__}")
        except Exception:  # a bug: the client is told so, and the log has the details
            log.exception("%s failed", path)
            return _problem(500, "request", "failed here; the log says why")

    def _send(self, answer: Reply | EventStream) -> None:
        if isinstance(answer, EventStream):
            self._stream(answer.events)
            return
        self.send_response(answer.status)
        headers = {**page_files.HEADERS, "content-type": answer.media, **answer.headers}
        for name, value in {**headers, "content-length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and answer.status != HTTPStatus.NOT_MODIFIED:
            self.wfile.write(answer.body)

    def _stream(self, events: Iterator[Any]) -> None:
        """Send events until there are no more or the client has left, then close `events`, which stops their source."""
        self.close_connection = True
        self.send_response(200)
        for name, value in {**page_files.HEADERS, "content-type": EVENTS, "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for event in events:
                self.wfile.write(b"data: " + json.dumps(event, allow_nan=False).encode() + b"\n\n")
                self.wfile.flush()
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

    def _gone(self) -> bool:
        """Whether the client has closed the connection: then it is readable, but reading yields nothing."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _problem(status: int, field: str, message: str) -> Reply:
    return as_json({"errors": [{"field": field, "message": message}]}, status)
