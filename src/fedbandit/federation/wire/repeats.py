"""What is said again: a receiver may have lost what the broker took from its sender.

It may have refused it while its own clock was wrong, or was put back to a copy from before it came. So whoever waits
for an answer says the same bytes again, now and then, until the answer comes; taking them twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Repeats"]

Key = TypeVar("Key", bound=Hashable)
MOST = 4096  # messages whose times are kept; the oldest are those of syncs that are long over


class Repeats(Generic[Key]):
    """When each message was sent last by this process, and how often; it is due again after `patience` seconds."""

    def __init__(self, patience: float, steady: Callable[[], float]) -> None:
        self._patience, self._steady = patience, steady
        self._sent: dict[Key, tuple[float, int]] = {}

    def said(self, key: Key) -> bool:
        """Whether this process has sent it."""
        return key in self._sent

    def due(self, key: Key) -> bool:
        """Whether it is time to say it again. The time of what an earlier process has said begins now."""
        return self._steady() - self._sent.setdefault(key, (self._steady(), 0))[0] > self._patience

    def suffix(self, key: Key) -> str:
        """What tells this repeat's message id from the others': the broker would not take the same id again."""
        times = self._sent.get(key, (0.0, 0))[1]
        return f".{times}" if times else ""

    def done(self, key: Key) -> None:
        """It was sent."""
        self._sent[key] = (self._steady(), self._sent.get(key, (0.0, 0))[1] + 1)
        while len(self._sent) > MOST:
            del self._sent[next(iter(self._sent))]

    def forget(self) -> None:
        """The receiver may have lost all of it: it counts as not said."""
        self._sent.clear()
