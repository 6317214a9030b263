"""Group commit: rewards that come while one transaction is being forced to the disk all go into the next one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from fedbandit.federation.silo import Silo
from fedbandit.federation.store import Reward, Verdict

MAX_GROUP = 5000  # rewards in one transaction


class GroupCommit:
    """`put` returns when the reward is on disk."""

    def __init__(self, silo: Silo) -> None:
        self._silo = silo
        self._writer = ThreadPoolExecutor(1, "rewards")
        self._waiting: list[tuple[list[Reward], asyncio.Future[list[Verdict]]]] = []
        self._drain: asyncio.Task[None] | None = None

    async def put(self, rewards: list[Reward]) -> list[Verdict]:
        done: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
        self._waiting.append((rewards, done))
        if self._drain is None:
            self._drain = asyncio.create_task(self._write())
        return await done

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group = self._next_group()
            rewards = [reward for part, _ in group for reward in part]
            try:
                if self._silo.store.engine.shared:
                    verdicts = await loop.run_in_executor(self._writer, self._silo.reward_many, rewards)
                else:
                    # SQLite: the statements take microseconds, only the disk is waited for in a thread. Threads that
                    # run Python beside this one would each time wait for the interpreter.
                    verdicts = self._silo.reward_many(rewards, durable=False)
                    await loop.run_in_executor(self._writer, self._silo.store.engine.sync)
            except Exception as error:  # whatever the store says, each caller is told; none is left waiting
                for _, done in group:
                    if not done.done():
                        done.set_exception(StoreUnavailable(f"{type(error).__name__}: {error}"))
                continue
            at = 0
            for part, done in group:
                if not done.done():  # a caller that has gone away
                    done.set_result(verdicts[at : at + len(part)])
                at += len(part)
        self._drain = None

    def _next_group(self) -> list[tuple[list[Reward], asyncio.Future[list[Verdict]]]]:
        size = taken = 0
        while taken < len(self._waiting) and (taken == 0 or size < MAX_GROUP):
            size += len(self._waiting[taken][0])
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group

    def close(self) -> None:
        self._writer.shutdown()


class StoreUnavailable(RuntimeError):
    """The store could not write; nothing was acknowledged, try again."""
