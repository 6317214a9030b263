"""Brings forward a party whose store is behind what others have seen of it.

The party asks the others, gives up the syncs that they have seen but its store has not, and goes on with the next one.
Nothing is drawn, added up or decoded a second time. What is given up is lost here: a silo's releases count as missed
and as spent; a mixer's totals and an analyzer's models exist only where they were seen. The party must not be running.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.federation.process import bind, claimed
from fedbandit.federation.setup.home import Home
from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.silo import book
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.forwarding import OldCopy, bring_forward, loss
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.store.silo_store import LedgerRow
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import MachineClocks
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.link import Link

__all__ = ["PATIENCE", "Recovery", "old_copy", "recover"]

PATIENCE = 60.0  # seconds in which the others must answer
LOOK = 0.1  # seconds between checks for answers


class Recovery(NamedTuple):
    """What a party gives up, or has given up, when it is brought forward."""

    syncs: tuple[int, ...]
    done: bool
    rewards: int = 0  # of a silo: the rewards in this store that are lost with those batches
    epsilon: float | None = None  # of a silo: what this term has spent according to its own ledger
    epsilon_after: float | None = None  # of a silo: the same, with those releases


async def recover(home: Home, *, agreed: bool, patience: float = PATIENCE) -> Recovery:
    """Ask the others which state of this party they saw last and, if `agreed`, bring its store forward."""
    party = home.party()
    work = _silo if home.settings.role == "silo" else _keeper
    try:
        async with asyncio.timeout(patience):
            return await work(home, party, agreed)
    except PlanMismatch as error:
        raise ArgumentError(
            "federation",
            f"must be that of the running term: {error}. Accept its file (`fedbandit federation accept --new-term`)",
        ) from None
    except TimeoutError:
        raise TimeoutError(
            f"no answer within {patience:g} s: the broker at {party.agreement.broker} must be running, and so must the"
            " parties that this one sends to or, if it is the analyzer, its silos"
        ) from None


async def _silo(home: Home, party: Party, agreed: bool) -> Recovery:
    plan, sealer = party.agreement.plan, Sealer(party)
    with Silo.open(
        claimed(home, party.agreement),
        plan,
        name=party.name,
        secret=home.salt,
        timing=party.agreement.timing,
        sealer=sealer,
        since=party.roll.since(party.name),
    ) as silo:
        bind(silo.store.engine, party.roll.charter)
        if not silo.store.engine.lead():
            raise ArgumentError("home", "must be the directory of a silo that is not running: stop its workers first")
        agent = Agent(silo, party, sealer)
        async with _connected(home, party) as link, _reading(link, party, agent.handle) as reading:
            while not (answers := await agent.greetings.answers()):
                await agent.introduce(link)
                await _look(reading)
        copy = old_copy(agent, answers)
        lost = loss(copy)
        before, after = _spent(silo, ()), _spent(silo, lost.entries)
        if agreed:
            bring_forward(copy, at=MachineClocks().read().wall)
        return Recovery(lost.syncs, agreed, lost.rewards, before, after)


def old_copy(agent: Agent, answers: Mapping[str, Greeting]) -> OldCopy:
    """The store of this agent's silo, and what others have seen of it."""
    silo, party = agent.silo, agent.party
    signer = party.keys_at(silo.ticker.open_sync).signer
    return OldCopy(silo.store, silo.plan, party.name, signer, list(answers.values()), party.verifiers(party.name))


def _spent(silo: Silo, more: tuple[LedgerRow, ...]) -> float | None:
    """The epsilon of this term by the silo's ledger plus these entries; None if there is no bound."""
    if silo.plan.privacy is None:  # what it sends is in the clear, and no entry is written
        return None
    spent = book.spending([*silo.store.ledger(), *more])
    epsilon = next((term.epsilon for term in spent.terms if term.term == silo.term.number), 0.0)
    return epsilon if math.isfinite(epsilon) else None


async def _keeper(home: Home, party: Party, agreed: bool) -> Recovery:
    kind: type[SyncKeeper] = Mixer if home.settings.role == "mixer" else Analyzer
    engine = open_engine(claimed(home, party.agreement))
    try:
        bind(engine, party.roll.charter)
        async with _connected(home, party) as link:
            keeper = kind(party, SyncStore(engine), link)
            async with _reading(link, party, keeper.take) as reading:
                while not keeper.answered:
                    await keeper.greet()
                    await _look(reading)
        if keeper.problem is not None and keeper.ahead is None:
            raise ArgumentError("store", f"cannot be brought forward: {keeper.problem}")
        behind = () if keeper.ahead is None else tuple(range(keeper.store.next_sync(), keeper.ahead.length))
        if agreed:
            keeper.give_up()
        return Recovery(behind, agreed)
    finally:
        engine.close()


@asynccontextmanager
async def _connected(home: Home, party: Party) -> AsyncIterator[Link]:
    link = await Link.connect_with(home.broker(party.agreement), party.name, [keys.broker for keys in party.keyring])
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def _reading(
    link: Link, party: Party, handle: Callable[[list[bytes]], Awaitable[None]]
) -> AsyncIterator[asyncio.Task[None]]:
    """Pass messages to `handle` while the block runs."""
    reading = asyncio.create_task(link.read(party.consumer, handle))
    try:
        yield reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _look(reading: asyncio.Task[None]) -> None:
    """Wait a little for answers; if reading has failed, raise its error."""
    await asyncio.wait({reading}, timeout=LOOK)
    if reading.done():
        reading.result()
