"""The applications of one silo: they ask for decisions over HTTP, see how users respond, and report the rewards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import numpy as np

from fedbandit.demo.processes import url
from fedbandit.demo.visitors import Visitors
from fedbandit.federation.setup.home import Home
from fedbandit.plan import Plan
from fedbandit.schedule import Clock

__all__ = ["SiloClient", "Visits", "quantile_ms"]

AT_ONCE = 4  # users of one silo at the same time
PATIENCE = 120.0  # seconds for which a request is repeated while a party restarts
MODEL_WAIT = 150.0


@dataclass
class Visits:
    """What happened at one silo, user by user."""

    actions: list[int]
    batches: list[int]  # the batch in which each reward counts; -1 if none
    refused: int = 0
    decide_seconds: list[float] = field(default_factory=list)
    reward_seconds: list[float] = field(default_factory=list)
    sync_seconds: list[float] = field(default_factory=list)


class SiloClient:
    """All users of one silo, in order: one per period of the plan's clock, or batch by batch if the plan counts
    decisions."""

    def __init__(self, home: Home, users: Visitors, silo: int, plan: Plan, start: float) -> None:
        self._users, self._silo, self._plan, self._start = users, silo, plan, start
        self.visits = Visits([0] * users.rounds, [-1] * users.rounds)
        self._http = httpx.AsyncClient(
            base_url=url(home),
            headers={"Authorization": f"Bearer {home.token()}"},
            limits=httpx.Limits(max_connections=AT_ONCE + 1),
            timeout=10,
        )

    async def run(self, progress: Callable[[int], None]) -> Visits:
        schedule = self._plan.schedule
        if isinstance(schedule, Clock):
            await asyncio.gather(self._by_the_clock(schedule.period, progress), self._models(schedule.period))
        else:
            await self._batch_by_batch(progress)
        await self._http.aclose()
        return self.visits

    async def _by_the_clock(self, period: float, progress: Callable[[int], None]) -> None:
        """Let a user come in the middle of every period, whether or not earlier users have been served."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def come(round_: int) -> None:
            await _until(self._start + (round_ + 0.5) * period)
            await self._visit(round_, gate)
            progress(1)

        await asyncio.gather(*(come(round_) for round_ in range(self._users.rounds)))

    async def _models(self, period: float) -> None:
        """Record how long after each tick the new model decides."""
        for sync, at in enumerate(self._plan.times):
            tick = self._start + at * period
            await _until(tick)
            await self._wait_for_model(sync + 1)
            self.visits.sync_seconds.append(time.time() - tick)

    async def _batch_by_batch(self, progress: Callable[[int], None]) -> None:
        first = 0
        for sync, last in enumerate(self._plan.times):
            gate = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._visit(round_, gate) for round_ in range(first, last)))
            began = time.perf_counter()
            await self._wait_for_model(sync + 1)
            self.visits.sync_seconds.append(time.perf_counter() - began)
            progress(last - first)
            first = last

    async def _visit(self, round_: int, gate: asyncio.Semaphore) -> None:
        async with gate:
            features = self._users.contexts[self._silo, round_].tolist()
            began = time.perf_counter()
            asked = {"actions": features, "user": f"user {self._silo}/{round_}"}
            decision = (await self._post("/v1/decisions", asked)).json()
            decided = time.perf_counter()
            action = decision["action"]
            reward = self._users.reward(self._silo, round_, action)
            answer = await self._post(f"/v1/decisions/{decision['id']}/reward", {"reward": reward})
            self.visits.decide_seconds.append(decided - began)
            self.visits.reward_seconds.append(time.perf_counter() - decided)
            self.visits.actions[round_] = action
            if answer.status_code == 200:
                self.visits.batches[round_] = answer.json()["batch"]
            else:
                self.visits.refused += 1

    async def _post(self, path: str, body: object) -> httpx.Response:
        """Post, and repeat while the silo is away: a reward counts once, however often it is sent."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                answer = await self._http.post(path, json=body)
                if answer.status_code < 500:
                    return answer
            except httpx.TransportError:
                pass
            if time.monotonic() > end:
                raise TimeoutError(f"{path} was not answered for {PATIENCE:.0f} s")
            await asyncio.sleep(0.1)

    async def _wait_for_model(self, version: int) -> None:
        """Wait until the silo decides by this model or a later one."""
        end = time.monotonic() + MODEL_WAIT
        while time.monotonic() < end:
            try:
                answer = await self._http.get("/v1/model")
                if answer.status_code == 200 and answer.json()["version"] >= version:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
        raise TimeoutError(f"model {version} did not come in {MODEL_WAIT:.0f} s")


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


def quantile_ms(seconds: list[float], share: float) -> float:
    """A quantile of latencies, in milliseconds."""
    return float(1000 * np.quantile(seconds, share))
