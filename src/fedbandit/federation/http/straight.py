"""A short way for the most important request: a decision that needs no waiting.

A request that has arrived completely, on a connection with no other request in progress, is passed directly to the
application, and its answer is written at once: without a task, and without messages between server and application. Any
unusual request (it comes in pieces, is refused, has to wait, closes the connection, or is not the first in the received
data) goes the long way, over ASGI. Both ways check and answer requests with the same code.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from fedbandit.federation.http.patience import PatientProtocol
from fedbandit.federation.telemetry import logs

__all__ = ["AtOnce", "StraightProtocol"]

Shown = list[tuple[bytes, bytes]]
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n"


@runtime_checkable
class AtOnce(Protocol):
    """An application that can answer some requests without waiting."""

    def at_once(self, path: bytes, shown: Shown, body: bytes) -> bytes | None:
        """The body of the answer to a POST, a 200 in JSON; None if the request must go the long way."""
        ...


class StraightProtocol(PatientProtocol):
    """uvicorn's protocol with a short way; unchanged for applications that are not `AtOnce`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        found = self.config.app
        self._application: AtOnce | None = found if isinstance(found, AtOnce) else None
        self._held: bytes | None = None  # the body so far of a request that may go the short way
        self._first = True  # whether the next request is the first in the received data

    def data_received(self, data: bytes) -> None:
        self._first = True
        super().data_received(data)

    def on_headers_complete(self) -> None:
        if self._short():
            self._held, self._first = b"", False
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
        else:
            self._held += body
            self._head = 0

    def on_message_complete(self) -> None:
        if self._held is None:
            super().on_message_complete()
            return
        answer = self._answer(self._held)
        if answer is None:
            self._take_the_long_way()
            super().on_message_complete()
            return
        self._held = None
        self._ended()
        given = None
        for name, value in self.headers:
            if name == logs.HEADER:
                given = value
        self.transport.write(_HEAD % (len(answer), logs.named(given)) + answer)
        self.on_response_complete()

    def _received(self) -> None:
        """Called when everything received so far has been parsed."""
        if self._held is not None and not self.transport.is_closing():
            self._take_the_long_way()  # the rest of the body is still to come
        super()._received()

    def _answer(self, body: bytes) -> bytes | None:
        assert self._application is not None
        try:
            return self._application.at_once(self.url, self.headers, body)
        except Exception:  # the long way will fail as well, and logs it and answers with a 500
            return None

    def _short(self) -> bool:
        return (
            self._application is not None
            and self._first
            and not self._answering
            and not self.pipeline
            and not self.expect_100_continue
            and not self.flow.write_paused
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        )

    def _take_the_long_way(self) -> None:
        held, self._held = self._held, None
        super().on_headers_complete()
        if held:
            super().on_body(held)
