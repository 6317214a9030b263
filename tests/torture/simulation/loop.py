"""An event loop without a machine below it: time passes when nobody has anything to do, and threads are turns."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Any

__all__ = ["SimulatedLoop"]

LATER = 0.3  # how often what is given to a thread waits while others go on


class SimulatedLoop(asyncio.BaseEventLoop):
    """Everybody who sleeps wakes at the next whole `beat`, as on a slow machine: a history has few moments.

    Work for a thread is done at once or a little later, as the seed says; nothing else decides about the order.
    """

    def __init__(self, chance: random.Random, beat: float) -> None:
        super().__init__()
        self._chance, self._beat, self._passed = chance, beat, 0.0
        self._selector = _NoSelector(self)
        self.set_exception_handler(lambda loop, context: None)  # whoever ends is looked at by its node

    def time(self) -> float:
        return self._passed

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return super().call_at(math.ceil(when / self._beat) * self._beat, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        if self._chance.random() < LATER:
            self.call_soon(_work, future, func, args)
        else:
            _work(future, func, args)
        return future

    def pass_time(self, seconds: float) -> None:
        self._passed += seconds

    def _process_events(self, event_list: Any) -> None:
        """There are none: nobody outside the loop does anything."""

    def _write_to_self(self) -> None:
        """Nobody waits outside the loop."""


class _NoSelector:
    """Instead of waiting for the machine, time passes."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for ever")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []


def _work(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """A thread goes on although nobody waits for it any more."""
    try:
        result = func(*args)
    except BaseException as error:
        if not future.cancelled():
            future.set_exception(error)
    else:
        if not future.cancelled():
            future.set_result(result)
