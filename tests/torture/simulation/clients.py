"""Applications of a silo: they ask, reward, lose answers, ask again; now and then somebody opts out."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedbandit.federation.http.group import StoreUnavailable
from fedbandit.federation.silo.decisions.tickets import UnknownDecision
from fedbandit.federation.silo.serving import RewardConflict, TermEnded, acknowledged
from tests.torture.simulation.machine import Crash
from tests.torture.simulation.node import Node
from tests.torture.simulation.oracle import Oracle

__all__ = ["Client"]

ACTIONS = [np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([[0.6, 0.8]]), np.array([[-0.5, 0.25]])]
PATIENCE = 6.0  # seconds after which an application gives a request up
PEOPLE = 5
SHARED = 0.9  # of the decisions; in the others somebody opts out
GRAIN = 2.0**-20  # rewards are different multiples of it, so that each can be told from all others


class _Asked(NamedTuple):
    decision: str
    reward: float
    keyed: bool
    shared: bool


@dataclass
class Client:
    """One application: unhurried, forgetful, and sometimes wrong."""

    node: Node
    oracle: Oracle
    chance: random.Random
    number: int
    count: int = 0
    waiting: list[_Asked] = field(default_factory=list)  # decisions without a reward
    answered: list[_Asked] = field(default_factory=list)  # those whose reward was acknowledged
    again: bool = False  # whether it has sent them again since the silo was put back

    async def run(self) -> None:
        waiting, answered = self.waiting, self.answered
        while True:
            await asyncio.sleep(self.chance.randint(1, 5))
            if self.node.silo is None or not self.node.up:
                continue
            if self.node.restored and not self.again:
                self.again = True
                for old in answered.copy():  # the silo was away: who knows what it has of the last ones
                    await self._reward(old)
            if self.chance.random() < 0.8:
                asked = self._decide()
                waiting.extend([asked] if asked is not None else [])
            if waiting and self.chance.random() < 0.8:
                asked = self.chance.choice(waiting)
                if await self._reward(asked):
                    waiting.remove(asked)
                    answered.append(asked)
            if answered and self.chance.random() < 0.2:
                await self._reward(self.chance.choice(answered))
            if answered and self.chance.random() < 0.1:
                await self._contradict(self.chance.choice(answered))

    def _decide(self) -> _Asked | None:
        person = self.chance.randrange(2 * PEOPLE)
        user = f"person {person}" if person < PEOPLE else None
        shared = self.chance.random() < SHARED
        silo = self.node.silo
        assert silo is not None
        try:
            decision = silo.decide(self.chance.choice(ACTIONS), user=user, shared=shared)
        except Crash:
            return None
        except Exception as error:
            self.oracle.fail(f"{self.node.name} does not decide: {error!r}")
            return None
        self.oracle.decided(self.node.name, decision.model)
        self.count += 1
        asked = _Asked(decision.id, (1000 * self.number + self.count) * GRAIN, user is not None, shared)
        self.oracle.issued(self.node.name, asked.reward, silo.ids.read(decision.id).person, shared)
        return asked

    async def _reward(self, asked: _Asked) -> bool:
        """True if there is no more to be done about it."""
        silo, group = self.node.silo, self.node.group
        if silo is None or group is None or not self.node.up:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                reward = silo.read(asked.decision, asked.reward)
                if self.chance.random() < 0.5:
                    answer = silo.reward(asked.decision, asked.reward)
                else:
                    (verdict,) = await group.put([reward])
                    answer = acknowledged(verdict)
        except TermEnded:
            if silo.store.term(silo.term.number).open_sync < silo.syncs:
                self.oracle.fail(f"{self.node.name} says that the term is over, and it is not")
            return True
        except UnknownDecision:
            if self.node.name not in self.oracle.put_back:  # a store that lost a whole term numbers the next one anew
                self.oracle.fail(f"{self.node.name} does not know a decision of its own")
            return True
        except (Crash, StoreUnavailable, sqlite3.OperationalError, OSError):  # a time-out is an OSError
            return False
        once = asked.shared and not asked.keyed
        self.oracle.answered(self.node.name, reward.nonce, asked.reward, answer, once)
        return True

    async def _contradict(self, asked: _Asked) -> None:
        """Another reward for a decision that has one."""
        silo = self.node.silo
        if silo is None or not self.node.up:
            return
        try:
            if not self.oracle.knows(self.node.name, silo.ids.read(asked.decision).nonce):
                return
            silo.reward(asked.decision, asked.reward / 2)
        except (RewardConflict, UnknownDecision, Crash, sqlite3.OperationalError, OSError):
            return
        self.oracle.fail(f"{self.node.name} takes a second reward for a decision")
