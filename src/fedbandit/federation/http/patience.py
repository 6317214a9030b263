"""How long a silo waits for a request that has begun, and for its caller to take the answer: nobody can keep its
connections by saying nothing or by not listening."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["ANSWER_TIMEOUT", "HEADER_TIMEOUT", "PatientProtocol"]

HEADER_TIMEOUT = 10.0  # seconds until the headers of a request must be there
ANSWER_TIMEOUT = 30.0  # seconds for which a caller may take nothing of what is written to it


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's own, which waits for ever for the first request, for the rest of one that has begun, and for a caller
    that does not read."""

    _giving_up: asyncio.TimerHandle | None = None
    _unheard: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """More is waiting to be taken than fits the buffers."""
        super().pause_writing()
        self._unheard = self.loop.call_later(ANSWER_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        self._heard()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._heard()
        super().connection_lost(exc)

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
        """Whether a request is being worked on; the application limits the time for its body."""
        return self.cycle is not None and not self.cycle.response_complete
