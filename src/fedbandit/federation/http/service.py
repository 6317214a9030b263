"""What a silo answers over HTTP: bodies in, bodies out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from fedbandit.federation.decisions import UnknownDecision
from fedbandit.federation.http import schemas
from fedbandit.federation.http.group import GroupCommit, StoreUnavailable
from fedbandit.federation.http.metrics import Metrics
from fedbandit.federation.http.refusals import FieldError
from fedbandit.federation.silo import Decision, RewardConflict, Silo, TermEnded, acknowledged
from fedbandit.federation.store import Reward, Verdict


class Service:
    """The answers of one silo. `connected` and `problem` report on its link to the federation."""

    def __init__(self, silo: Silo) -> None:
        self.silo = silo
        self.group, self.metrics = GroupCommit(silo), Metrics()
        self.connected: Callable[[], bool] = lambda: False
        self.problem: Callable[[], str | None] = lambda: None

    async def decide(self, body: bytes) -> bytes:
        """Choose one of the actions."""
        decision = self._decide(schemas.DecisionRequest.model_validate_json(body))
        self.metrics.decisions.inc()
        return f'{{"id":"{decision.id}","action":{decision.action},"model":{decision.model}}}'.encode()

    async def reward(self, decision: str, body: bytes) -> bytes:
        """Reward a decision, once; on disk when this answers. The same reward again is acknowledged again."""
        asked = schemas.RewardRequest.model_validate_json(body)
        reward = self.silo.read(decision, asked.reward)
        began = time.perf_counter()
        (verdict,) = await self.group.put([reward])
        self.metrics.commit.observe(time.perf_counter() - began)
        self.metrics.rewarded(verdict)
        answer = acknowledged(verdict)
        counted, repeated = str(answer.counted).lower(), str(answer.repeated).lower()
        return f'{{"counted":{counted},"batch":{answer.batch},"repeated":{repeated}}}'.encode()

    async def decide_batch(self, body: bytes) -> dict[str, Any]:
        """Several decisions at once: all or, if one of them is wrong, none."""
        asked = schemas.DecisionBatch.model_validate_json(body)
        decisions = []
        for number, one in enumerate(asked.decisions):
            try:
                decisions.append(self._decide(one))
            except (ValueError, LookupError) as error:
                raise FieldError(f"decisions.{number}", str(error)) from None
        self.metrics.decisions.inc(len(decisions))
        return {"decisions": [decision._asdict() for decision in decisions]}

    async def reward_batch(self, body: bytes) -> dict[str, Any]:
        """Several rewards in one transaction; each has its own answer."""
        asked = schemas.RewardBatch.model_validate_json(body)
        opened = [self._open(one) for one in asked.rewards]
        verdicts = await self.group.put([one for one in opened if isinstance(one, Reward)])
        for verdict in verdicts:
            self.metrics.rewarded(verdict)
        waiting = iter(verdicts)
        return {"rewards": [_result(next(waiting)) if isinstance(one, Reward) else one for one in opened]}

    async def register(self, name: str, body: bytes) -> dict[str, Any]:
        """Register an action set under a name, for good."""
        asked = schemas.ActionSetRequest.model_validate_json(body)
        await asyncio.to_thread(self.silo.register, name, asked.actions)
        return self.action_sets()

    def action_sets(self) -> dict[str, Any]:
        """The registered action sets."""
        return {"action_sets": self.silo.action_sets()}

    def model(self) -> dict[str, Any]:
        """The model that decides now; it is public within the federation."""
        version, theta = self.silo.model()
        plan = self.silo.plan
        return {"version": version, "plan": plan.hash, "dim": plan.dim, "theta": theta}

    def health(self) -> dict[str, Any]:
        """Alive; and whether the term still runs."""
        return {"status": "ok", "term": "ended" if self.silo.ended else "running"}

    async def readiness(self) -> dict[str, Any]:
        """Whether decisions and rewards can be taken now."""
        problem = self.problem()
        try:
            await self.group.put([])
        except StoreUnavailable as error:
            problem = str(error)
        return {"ready": problem is None, "connected": self.connected(), "problem": problem}

    def _decide(self, asked: schemas.DecisionRequest) -> Decision:
        actions = asked.actions if asked.action_set is None else asked.action_set
        assert actions is not None
        return self.silo.decide(actions, user=asked.user, allowed=asked.allowed)

    def _open(self, one: schemas.NamedReward) -> Reward | dict[str, Any]:
        try:
            return self.silo.read(one.decision, one.reward)
        except UnknownDecision as error:
            return _refused(404, "decision", error)


def _result(verdict: Verdict) -> dict[str, Any]:
    try:
        return {"status": 200, "answer": acknowledged(verdict)._asdict()}
    except RewardConflict as error:
        return _refused(409, "reward", error)
    except TermEnded as error:
        return _refused(410, "decision", error)


def _refused(status: int, field: str, error: Exception) -> dict[str, Any]:
    return {"status": status, "error": {"field": field, "message": str(error)}}
