"""An event loop without a machine below it: time passes when nobody has anything to do, and threads are turns."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any

__all__ = ["SimulatedLoop"]

LATER = 0.3  # how often what is given to a thread waits while others go on


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Everybody who sleeps wakes at the next whole `beat`, as on a slow machine: a history has few moments.

    Work for a thread is done at once or a little later, as the seed says; nothing else decides about the order. What
    ends with an exception is looked at by its node.
    """

    def __init__(self, chance: random.Random, beat: float) -> None:
        self._chance, self._beat, self._passed = chance, beat, 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._moments: list[float] = []  # a heap
        self._due: dict[float, list[asyncio.TimerHandle]] = {}  # by moment, in the order in which they were set
        self._context = contextvars.copy_context()  # nobody has one of their own

    def run_until_complete(self, future: Any) -> Any:
        """Play until this is done."""
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(future)
            while not task.done():
                self._turn()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        """Nobody does anything any more."""
        self._ready.clear()
        self._due.clear()

    def _turn(self) -> None:
        """All who have something to do, or the next moment."""
        ready = self._ready
        if not ready:
            if not self._moments:
                raise RuntimeError("everybody waits for ever")
            self._passed = heappop(self._moments)
            ready.extend(self._due.pop(self._passed))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    # -- what asyncio asks of a loop --------------------------------------------------------------------------------

    def time(self) -> float:
        return self._passed

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context or self._context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._passed + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        moment = max(self._passed, math.ceil(when / self._beat) * self._beat)
        timer = _Timer(moment, callback, args, self, context or self._context)
        if moment not in self._due:
            self._due[moment] = []
            heappush(self._moments, moment)
        self._due[moment].append(timer)
        return timer

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        if self._chance.random() < LATER:
            self.call_soon(_work, future, func, args)
        else:
            _work(future, func, args)
        return future

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Whoever ends is looked at by its node."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its moment comes."""


class _Handle(asyncio.Handle):
    """A turn that is cheap to make: there is one for every step of every task."""

    def __init__(self, callback: Any, args: Any, loop: SimulatedLoop, context: contextvars.Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr = False, None

    def _run(self) -> None:
        self._context.run(self._callback, *self._args)


class _Timer(asyncio.TimerHandle):
    """The same at its moment."""

    def __init__(
        self, when: float, callback: Any, args: Any, loop: SimulatedLoop, context: contextvars.Context
    ) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True


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
