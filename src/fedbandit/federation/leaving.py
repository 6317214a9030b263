"""How a process ends that has an event loop and threads: in order when it is told to, and otherwise at once."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, NoReturn

__all__ = ["END", "ended", "heed", "leave", "until_stopped"]

END = 8.0  # seconds after which a party that was told to end is ended where it stands; requests get 5 of them
AGAIN = 0.5  # seconds until a task that goes on is cancelled again


async def until_stopped(work: Coroutine[Any, Any, None], beside: asyncio.Task[None] | None) -> None:
    """Run until SIGTERM or SIGINT, or until the task `beside` ends, which it does only if it fails."""
    task, told = asyncio.create_task(work), asyncio.Event()
    heed(told.set)
    task.add_done_callback(lambda _: told.set())
    if beside is not None:
        beside.add_done_callback(lambda _: told.set())
    await told.wait()
    await ended(task)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task until it has ended, and raise what it raised: a cancellation is lost if it comes together with what
    the task is waiting for, or while a library swallows it."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN)
    if not task.cancelled():
        task.result()


def heed(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGTERM or SIGINT. A party that has not ended some seconds later is ended where it stands, which
    loses no more than kill -9 does: nothing.

    A database that hangs, for instance, holds up threads for ever, and in a mixer or an analyzer the event loop too, so
    that it does not hear the signal. The timer needs neither the loop nor the interpreter. It leaves a note of what
    every thread was doing.
    """
    errors = sys.__stderr__ or os.open(os.devnull, os.O_WRONLY)
    told: list[int] = []

    def heard(number: int, frame: FrameType | None) -> None:
        if not told:
            faulthandler.dump_traceback_later(END, exit=True, file=errors)
        told.append(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
        signal.signal(number, heard)  # the loop is woken by the signal itself, whatever its handler does
        signal.siginterrupt(number, False)


def leave(code: int) -> NoReturn:
    """End this process now. Everything is closed and on disk. To take the interpreter down in order takes seconds on a
    busy machine, and waits for threads: one may be compiling, another may wait for a database that hangs."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # nobody may be reading any more
            stream.flush()
    os._exit(code)
