"""Messages that were refused: counted, and logged without letting whoever sends them fill the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Refused"]

log = logging.getLogger(__name__)
QUIET = 10.0  # seconds between lines


class Refused:
    """A count of refused messages. The first is logged at once, later ones at most every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._clock, self._unsaid, self._next = clock, 0, -float("inf")

    def note(self, reason: BaseException) -> None:
        self.count += 1
        now = self._clock()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more since the last line)" if self._unsaid else ""
        log.warning("refused a message: %s: %s%s", type(reason).__name__, str(reason)[:300], more)
        self._unsaid, self._next = 0, now + QUIET
