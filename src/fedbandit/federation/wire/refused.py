"""Messages that were refused: counted by reason, and logged so that their senders cannot fill the log."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

__all__ = ["Refused"]

log = logging.getLogger(__name__)
QUIET = 10.0  # seconds between log lines


class Refused:
    """A count of refused messages. The first is logged at once, later ones at most every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reasons: Counter[str] = Counter()  # by the type of error, of which there are few, whatever is sent
        self._clock, self._unsaid, self._next = clock, 0, -float("inf")

    @property
    def count(self) -> int:
        """The number of messages that were refused."""
        return self.reasons.total()

    def note(self, reason: BaseException) -> None:
        self.reasons[type(reason).__name__] += 1
        now = self._clock()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more since the last line)" if self._unsaid else ""
        log.warning("refused a message: %s: %s%s", type(reason).__name__, str(reason)[:300], more)
        self._unsaid, self._next = 0, now + QUIET
