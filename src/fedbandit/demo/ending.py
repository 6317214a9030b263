"""How a program that has started other processes is told to end: signals are noted, and obeyed where that is safe.

An exception that a signal's handler raises comes up wherever the main thread happens to be. In a destructor, or in a
callback of the interpreter (every import runs some), it is printed and lost, and the program goes on as if nothing had
been said. Between the start of a process and the note of its id, it leaves a process that nobody stops.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

__all__ = ["ENDING", "LOOK", "Ending", "heeded"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK = 0.05  # seconds between looks at what was said, while the program waits for something
T = TypeVar("T")


class Ending:
    """Whether the program was told to end. Without `heeded`, nobody tells it."""

    def __init__(self) -> None:
        self._number = 0
        self._at_once = False

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """The handler of the signals."""
        self._number = self._number or number
        if self._at_once:
            self.check()

    def check(self) -> None:
        """End here if the program was told to end."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number:
            raise SystemExit(128 + self._number)

    def pause(self, seconds: float) -> None:
        """Sleep; end if told to."""
        end = time.monotonic() + seconds
        while True:
            self.check()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(LOOK, left))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this to its end in an event loop of its own, or cancel it and end if told to."""
        return asyncio.run(self._watched(work))

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        while not task.done():
            if self._number:
                task.cancel()
            await asyncio.wait({task}, timeout=LOOK)
        self.check()
        return task.result()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block, which starts no processes, a signal interrupts long computations. Should that be lost, the
        program ends with the block."""
        self.check()
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False
        self.check()


@contextmanager
def heeded() -> Iterator[Ending]:
    """Heed the signals that tell a program to end, except for those that it was started to ignore (as by `nohup`)."""
    ending = Ending()
    before = {one: signal.getsignal(one) for one in ENDING}
    taken = {one: handler for one, handler in before.items() if handler is not signal.SIG_IGN}
    for one in taken:
        signal.signal(one, ending.note)
    try:
        yield ending
    finally:
        for one, handler in taken.items():
            signal.signal(one, handler)
