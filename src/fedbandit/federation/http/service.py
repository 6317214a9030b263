"""The calls that a silo answers over HTTP.

The signature of a call describes it: the parameter that the path names, the body, and the answers.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from fedbandit._validate import ArgumentError
from fedbandit.federation.board.silo_board import Running, SiloBoard
from fedbandit.federation.http import schemas
from fedbandit.federation.http.families import Dates, Machine, PartyView
from fedbandit.federation.http.group import GroupCommit, StoreUnavailable, in_thread
from fedbandit.federation.http.metrics import Metrics, WorkerTally
from fedbandit.federation.http.personalizer import Personalizer
from fedbandit.federation.http.refusals import Refusal, refusal
from fedbandit.federation.silo.decisions import actions as choosing
from fedbandit.federation.silo.decisions.decider import UnknownActionSet
from fedbandit.federation.silo.decisions.tickets import DecisionExpired, UnknownDecision
from fedbandit.federation.silo.serving import RewardConflict, Silo, TermEnded, acknowledged
from fedbandit.federation.store import Reward, Verdict
from fedbandit.federation.store.database import Engine
from fedbandit.federation.store.opening import probe
from fedbandit.federation.telemetry.troubles import Troubles, first
from fedbandit.federation.timing import Timing
from fedbandit.problem.encoding import ActionRecord, Offered

__all__ = ["UNCONNECTED", "Connection", "Service", "StoreCheck"]

PROBE_AGAIN = 1.0  # seconds between writes that test whether the store works: anybody may ask
PATIENCE = 5.0  # seconds after which a store that does not answer counts as not ready
LAST = 20  # number of refused requests that the page shows
AT_ONCE = 32  # decisions of a batch before other requests get a turn


class Connection(Protocol):
    """A silo's connection to its federation."""

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        ...

    @property
    def troubles(self) -> Troubles:
        """What keeps the silo from ticking, if anything does."""
        ...

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of refused messages, by reason."""
        ...


class _Unconnected(NamedTuple):
    connected: bool = False
    troubles: Troubles = MappingProxyType({})
    refusals: Mapping[str, int] = MappingProxyType({})


UNCONNECTED: Connection = _Unconnected()  # a silo without a federation


class StoreCheck:
    """Tests a party's store by writing to it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._probed = engine, 0.0

    async def trouble(self, before: Awaitable[object] | None = None) -> str | None:
        """Why the store does not work, if it does not; `before` must succeed too, in the same time."""
        try:
            async with asyncio.timeout(PATIENCE):
                if before is not None:
                    await before
                if time.monotonic() - self._probed > PROBE_AGAIN:
                    await in_thread(partial(probe, self._engine))
                    self._probed = time.monotonic()
        except StoreUnavailable as error:
            return str(error)
        except TimeoutError:
            return f"the store has not answered for {PATIENCE:g} s"
        return None


class Service:
    """The calls of one silo. Whatever may wait for a database or a disk runs in threads, outside the event loop."""

    def __init__(
        self,
        silo: Silo,
        connection: Connection = UNCONNECTED,
        tally: WorkerTally | None = None,
        *,
        timing: Timing = Timing(),  # noqa: B008 (frozen)
        machine: Machine = Machine(),  # noqa: B008 (frozen)
    ) -> None:
        """`tally` is where this worker counts what it does; by default it counts alone. `timing` is what the federation
        agreed on, `machine` what the metrics show of the machine."""
        self._silo, self._connection, self._machine = silo, connection, machine
        self._dates, self._check = Dates(silo.plan, timing), StoreCheck(silo.store.engine)
        self._group, self._metrics = GroupCommit(silo), Metrics(tally or WorkerTally())
        self._board = SiloBoard(silo.store, silo.plan, silo.name, self._dates.of, self._dates.deadline)
        self._last_refused: deque[dict[str, Any]] = deque(maxlen=LAST)
        schema = silo.plan.schema
        self.personalizer = None if schema is None else Personalizer(silo, self._group, self._metrics)
        self._in_memory: set[str] = set()  # registered sets that the silo has read from its store

    async def decide(self, asked: schemas.DecisionRequest) -> schemas.DecisionAnswer:
        """Choose one of the actions."""
        answer = await self._decide(asked)
        self._metrics.decided()
        return answer

    def decide_at_once(self, asked: schemas.DecisionRequest) -> schemas.DecisionAnswer | None:
        """The same if it can be answered without waiting; None if it may have to wait for the store."""
        answer = self._decide_from_memory(asked)
        if answer is not None:
            self._metrics.decided()
        return answer

    async def reward(self, decision: schemas.DecisionId, asked: schemas.RewardRequest) -> schemas.RewardAnswer:
        """Reward a decision, once. The answer comes when the reward is on disk; a repeated reward is acknowledged."""
        reward = self._read(decision, asked.reward)
        began = time.perf_counter()
        (verdict,) = await self._group.put([reward])
        self._metrics.committed(time.perf_counter() - began)
        self._metrics.rewarded(verdict, reward.place)
        return schemas.RewardAnswer(*acknowledged(verdict))

    async def decide_batch(self, asked: schemas.DecisionBatch) -> schemas.DecisionAnswers:
        """Make several decisions: all of them or, if one request is wrong, none."""
        answers = []
        for number, one in enumerate(asked.decisions):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                answers.append(await self._decide(one))
            except ArgumentError as error:
                raise ArgumentError(f"decisions.{number}", str(error)) from None
        self._metrics.decided(len(answers))
        return schemas.DecisionAnswers(answers)

    async def reward_batch(self, asked: schemas.RewardBatch) -> schemas.RewardResults:
        """Reward several decisions in one transaction; each reward has its own result."""
        opened = [self._open(one) for one in asked.rewards]
        rewards = [one for one in opened if isinstance(one, Reward)]
        verdicts = await self._group.put(rewards)
        for reward, verdict in zip(rewards, verdicts, strict=True):
            self._metrics.rewarded(verdict, reward.place)
        waiting = iter(verdicts)
        return schemas.RewardResults([_result(next(waiting)) if isinstance(one, Reward) else one for one in opened])

    async def register(self, name: schemas.Name, asked: schemas.ActionSetRequest) -> schemas.ActionSets:
        """Register an action set under a name, permanently."""
        await in_thread(partial(self._silo.register, name, self._features(asked.actions)))
        return await self.action_sets()

    async def action_sets(self) -> schemas.ActionSets:
        """List the registered action sets."""
        return schemas.ActionSets(self._silo.action_sets())

    async def model(self) -> schemas.ModelAnswer:
        """Show the model that decides now; it is public within the federation."""
        (version, theta), plan = self._silo.model(), self._silo.plan
        return schemas.ModelAnswer(version, plan.hash, plan.dim, theta)

    async def status(self) -> schemas.SiloStatus:
        """Show the state of the term."""
        return schemas.SiloStatus(**await in_thread(self._silo.status))

    async def health(self) -> schemas.Health:
        """Say that the process is alive, and whether the term is still running."""
        return schemas.Health("ok", "ended" if self._silo.ended else "running")

    async def readiness(self) -> schemas.Readiness | schemas.NotReady:
        """Say whether decisions and rewards are possible now."""
        connected, troubles = self._connection.connected, await self._troubles()
        kind = schemas.NotReady if troubles else schemas.Readiness
        return kind(not troubles, connected, first(troubles), dict(troubles))

    async def metrics(self) -> bytes:
        """Metrics of the silo, all workers together, for Prometheus. They are served even if the store fails."""
        troubles, status, learning = dict(await self._troubles()), None, None
        try:
            async with asyncio.timeout(0 if "store" in troubles else PATIENCE):
                status = await self.status()
                learning = await in_thread(self._silo.earnings.learning)
        except (StoreUnavailable, TimeoutError) as error:
            troubles.setdefault("store", str(error) or "the store cannot be read")
        view = PartyView(
            self._silo.name,
            "silo",
            self._silo.plan,
            self._connection.connected,
            "store" not in troubles,
            troubles,
            self._connection.refusals,
            self._dates,
            None if status is None else status.model,
            self._machine,
        )
        return self._metrics.page(view, status, learning, self._silo.odd_values)

    async def board(self) -> bytes:
        """What the silo's own page shows."""
        troubles = dict(await self._troubles())
        connection = self._connection
        live = Running(
            troubles,
            connection.connected,
            connection.refusals,
            tuple(self._last_refused),
            self._metrics.counts(),
            self._machine.values(),
        )
        return msgspec.json.encode(await in_thread(partial(self._board.read, live)))

    def refused(self, refusal: Refusal) -> None:
        """Count a refused request. The page shows what was wrong with the last ones, without the values sent."""
        self._metrics.refused(refusal.status)
        if refusal.status == 401:  # anybody can cause these: they would fill the page
            return
        says = refusal.problem.message.partition(", got ")[0]
        self._last_refused.append(
            {"at": round(time.time()), "status": refusal.status, "field": refusal.problem.field, "says": says}
        )

    async def _troubles(self) -> Troubles:
        """What keeps the silo, including its store, from working as it should."""
        troubles, why = dict(self._connection.troubles), await self._check.trouble(self._group.put([]))
        return troubles if why is None else {**troubles, "store": why}

    def close(self) -> None:
        """End the thread that waits for the disk."""
        self._group.close()

    async def _decide(self, asked: schemas.DecisionRequest) -> schemas.DecisionAnswer:
        answer = self._decide_from_memory(asked)
        if answer is not None:
            return answer
        try:
            answer = await in_thread(partial(self._chosen, asked))
        except UnknownActionSet as error:
            raise ArgumentError("action_set", f"must be the name of a registered set, got {error.name!r}") from None
        if asked.action_set is not None:
            self._in_memory.add(asked.action_set)
        return answer

    def _decide_from_memory(self, asked: schemas.DecisionRequest) -> schemas.DecisionAnswer | None:
        """The answer, or None if the store is needed: for a place in a batch, for somebody who does not count, or for
        an action set that has not been read yet."""
        unread = asked.action_set is not None and asked.action_set not in self._in_memory
        return None if unread or not asked.shared or self._silo.deciding_writes(asked.user) else self._chosen(asked)

    def _chosen(self, asked: schemas.DecisionRequest) -> schemas.DecisionAnswer:
        decision = self._silo.decide(
            self._offered(asked),
            context=asked.context,
            user=asked.user,
            allowed=asked.allowed,
            chosen=asked.chosen,
            propensity=asked.propensity,
            shared=asked.shared,
        )
        return schemas.DecisionAnswer(*decision)

    def _offered(self, asked: schemas.DecisionRequest) -> Any:
        """The actions in the form that a silo takes: records if there is a context, otherwise rows or a set's name."""
        if asked.actions is None:
            return asked.action_set
        if asked.context is None:
            if any(isinstance(one, schemas.ActionRequest | str) for one in asked.actions[:1]):
                raise ArgumentError("context", "must be given with actions that are names or tables")
            return self._features(asked.actions)
        return _offered(asked.actions)

    def _features(self, rows: Any) -> Any:
        return choosing.from_bytes(rows, self._silo.plan.dim) if isinstance(rows, bytes) else rows

    def _read(self, decision: str, reward: float) -> Reward:
        try:
            read = self._silo.read(decision, reward)
            self._metrics.waited(self._silo.now - self._silo.ids.read(decision).issued)
            return read
        except DecisionExpired:
            self._metrics.reward_was("expired")
            raise

    def _open(self, one: schemas.NamedReward) -> Reward | schemas.RewardResult:
        try:
            return self._read(one.decision, one.reward)
        except (UnknownDecision, DecisionExpired) as error:
            return _refused(error)


def _offered(actions: Any) -> Any:
    """Actions that come with a context. Their types were checked when the body was read."""
    if {type(one) for one in actions} == {schemas.ActionRequest}:
        return Offered([one.id for one in actions], [one.features for one in actions])
    return [ActionRecord(one.id, one.features) if isinstance(one, schemas.ActionRequest) else one for one in actions]


def _result(verdict: Verdict) -> schemas.RewardResult:
    try:
        return schemas.RewardResult(200, schemas.RewardAnswer(*acknowledged(verdict)))
    except (RewardConflict, TermEnded) as error:
        return _refused(error)


def _refused(error: UnknownDecision | DecisionExpired | RewardConflict | TermEnded) -> schemas.RewardResult:
    found = refusal(error)
    return schemas.RewardResult(found.status, error=found.problem)
