"""Group commit: rewards that arrive while a transaction is being written to disk go into the next one together."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import TypeVar

from fedbandit._validate import ArgumentError
from fedbandit.federation.silo.decisions.decider import UnknownActionSet
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import Reward, Verdict

__all__ = ["GroupCommit", "StoreUnavailable", "in_thread"]

T = TypeVar("T")

log = logging.getLogger(__name__)
MAX_GROUP = 5000  # rewards in one transaction
Waiting = tuple[list[Reward], asyncio.Future[list[Verdict]]]


class StoreUnavailable(RuntimeError):
    """The store failed; nothing was acknowledged, and the caller may try again."""

    @classmethod
    def because(cls, error: Exception) -> StoreUnavailable:
        """The exception with the reason. What a disk or a database does to a store is one line in the log; where
        anything else comes from is there in full."""
        outside = isinstance(error, (sqlite3.OperationalError, OSError)) or type(error).__module__.startswith("psycopg")
        reason = str(error).partition("\n")[0] if outside else ""
        reason = reason or f"{type(error).__name__}: {error}"
        log.error("the store does not work: %s", reason, exc_info=None if outside else error)
        return cls(f"the store does not work ({reason}); whatever is refused meanwhile can be sent again")


class GroupCommit:
    """Writes rewards in groups; `put` returns when its rewards are on disk."""

    def __init__(self, silo: Silo) -> None:
        self._silo = silo
        self._writer = ThreadPoolExecutor(1, "rewards")
        self._waiting: list[Waiting] = []
        self._drain: asyncio.Task[None] | None = None

    async def put(self, rewards: list[Reward]) -> list[Verdict]:
        """Store rewards together with all others that wait; StoreUnavailable if the store does not work."""
        done: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
        self._waiting.append((rewards, done))
        if self._drain is None:
            # In a new context: it also writes for other requests than the one that came first.
            self._drain = asyncio.create_task(self._write(), context=Context())
        return await done

    def close(self) -> None:
        self._writer.shutdown()

    async def _write(self) -> None:
        while self._waiting:
            group = self._next_group()
            try:
                verdicts = await self._commit([reward for part, _ in group for reward in part])
            except Exception as error:  # whatever failed, every caller is told and none is left waiting
                _fail(group, StoreUnavailable.because(error))
            else:
                _tell(group, verdicts)
        self._drain = None

    async def _commit(self, rewards: list[Reward]) -> list[Verdict]:
        loop, engine = asyncio.get_running_loop(), self._silo.store.engine
        if engine.shared:
            return await loop.run_in_executor(self._writer, self._silo.reward_many, rewards)
        # SQLite: the statements take microseconds, so only the wait for the disk is left to the thread. Python code in
        # another thread than the event loop's would have to wait for the interpreter every time.
        verdicts = self._silo.reward_many(rewards, durable=False)
        await loop.run_in_executor(self._writer, engine.harden)
        return verdicts

    def _next_group(self) -> list[Waiting]:
        size = taken = 0
        while taken < len(self._waiting) and (taken == 0 or size < MAX_GROUP):
            size += len(self._waiting[taken][0])
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group


async def in_thread(call: Callable[[], T]) -> T:
    """Make a call that may wait for the database, in a thread. Errors of the database become StoreUnavailable."""
    try:
        return await asyncio.to_thread(call)
    except (ArgumentError, UnknownActionSet):
        raise
    except Exception as error:
        raise StoreUnavailable.because(error) from error


def _tell(group: list[Waiting], verdicts: list[Verdict]) -> None:
    at = 0
    for part, done in group:
        if not done.done():  # a caller may have gone away
            done.set_result(verdicts[at : at + len(part)])
        at += len(part)


def _fail(group: list[Waiting], error: StoreUnavailable) -> None:
    for _, done in group:
        if not done.done():
            done.set_exception(error)
