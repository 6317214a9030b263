"""Messages that are sent again, because a receiver may have lost a message that the broker has accepted.

The receiver may have refused it while its own clock was wrong, or may have been put back to an older copy. So a sender
that waits for an answer sends the same bytes again from time to time, until the answer comes. Receiving them twice
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Repeats"]

Key = TypeVar("Key", bound=Hashable)
MOST = 4096  # messages whose times are kept; the oldest belong to syncs that are long over


class _Sent(NamedTuple):
    last: float  # on the steady clock
    times: int


class Repeats(Generic[Key]):
    """When this process last sent each message, and how often; a message is due again after `patience` seconds."""

    def __init__(self, patience: float, steady: Callable[[], float]) -> None:
        self._patience, self._steady = patience, steady
        self._sent: dict[Key, _Sent] = {}

    def said(self, key: Key) -> bool:
        """Whether this process has sent the message."""
        return key in self._sent

    def due(self, key: Key) -> bool:
        """Whether it is time to send the message again. If an earlier process sent it, the waiting time begins now."""
        return self._steady() - self._sent.setdefault(key, _Sent(self._steady(), 0)).last > self._patience

    def suffix(self, key: Key) -> str:
        """A suffix that makes the message id of this repeat new: the broker would drop a message with the same id."""
        times = self._times(key)
        return f".{times}" if times else ""

    def done(self, key: Key) -> None:
        """Note that the message was sent."""
        self._sent[key] = _Sent(self._steady(), self._times(key) + 1)
        while len(self._sent) > MOST:
            del self._sent[next(iter(self._sent))]

    def forget(self) -> None:
        """Treat all messages as not sent, because the receiver may have lost them."""
        self._sent.clear()

    def _times(self, key: Key) -> int:
        return self._sent[key].times if key in self._sent else 0
