"""Limits how long a silo waits for the rest of a request and for the caller to read the answer, and how many bytes it
reads outside a body. Nobody can occupy its connections or its memory by sending nothing, by sending endless headers or
by not reading."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["ANSWER_TIMEOUT", "HEADER_TIMEOUT", "MAX_HEAD", "PatientProtocol"]

HEADER_TIMEOUT = 10.0  # seconds within which the headers of a request must arrive
ANSWER_TIMEOUT = 30.0  # seconds for which a caller may read nothing of its answer
MAX_HEAD = 64 * 2**10  # bytes of headers, trailers or chunk sizes that may come in a row


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits. Without them it waits for ever for the first request, for the rest of a request
    and for a caller that does not read, and it accepts headers of any length."""

    _giving_up: asyncio.TimerHandle | None = None
    _unheard: asyncio.TimerHandle | None = None
    _head = 0  # bytes received since the last part of a body, or since the last request ended
    _begun = False  # whether a request has begun and has not ended

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        self._received()

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._ended()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._begun:
            self._watch()

    def pause_writing(self) -> None:
        """The caller reads more slowly than the answer is written: the buffers are full."""
        super().pause_writing()
        self._unheard = self.loop.call_later(ANSWER_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        self._heard()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._heard()
        super().connection_lost(exc)

    def _received(self) -> None:
        """Called when everything received so far has been parsed."""
        if self._head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"More than {MAX_HEAD} bytes of headers.")
        self._watch()

    def _ended(self) -> None:
        """Called when a request has arrived completely."""
        self._head, self._begun = 0, False

    def _watch(self) -> None:
        if self._answering:
            self._unwatch()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(HEADER_TIMEOUT, self._give_up)

    def _unwatch(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _heard(self) -> None:
        if self._unheard is not None:
            self._unheard.cancel()
            self._unheard = None

    def _give_up(self) -> None:
        self._giving_up = None
        if not self._answering and not self.transport.is_closing():
            self.transport.close()

    @property
    def _answering(self) -> bool:
        """Whether a request is being handled; the application limits the time for its body."""
        return self.cycle is not None and not self.cycle.response_complete
