"""What a silo asks the others before it draws: how far have they seen it come, by which plan, with which members?"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable

from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.setup.registrar import ASK_AGAIN, Registrar
from fedbandit.federation.silo.forwarding import further
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT, Context
from fedbandit.federation.wire.heads import NO_QUESTION, Greeting
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.link import Link

__all__ = ["Greetings"]

log = logging.getLogger(__name__)


class Greetings:
    """What a silo asks the receivers of its releases before it draws anything, and what it answers them.

    The sealer is held until all of them have answered the silo's question, and `judge` has found that they have the
    same plan and the same members, read the same format, and have seen no more of the silo than its store has.
    """

    def __init__(
        self,
        silo: Silo,
        party: Party,
        sealer: Sealer,
        seen: SeenStore,
        registrar: Registrar,
        steady: Callable[[], float],
    ) -> None:
        self.question = NO_QUESTION  # the one that the others are to answer; none if they must be asked anew
        self.answered = asyncio.Event()  # set whenever a greeting was taken in
        self._silo, self._party, self._sealer = silo, party, sealer
        self._seen, self._registrar, self._steady = seen, registrar, steady
        self._ask_at = -math.inf

    @property
    def _analyzer(self) -> PublicKeys:
        return self._party.agreement.holder("analyzer")

    async def ask(self, link: Link | None) -> None:
        """Ask those who have not answered how far they have seen this silo come; not too often."""
        if self.question == NO_QUESTION:
            question = secrets.token_bytes(len(NO_QUESTION))
            await asyncio.to_thread(self._seen.ask, question)
            self.question = question  # only once it is on disk: before that, answers to it would not be recognised
        elif self._steady() < self._ask_at:
            return
        self._ask_at = self._steady() + ASK_AGAIN
        answers = await asyncio.to_thread(self._seen.answers, self.question)
        for receiver in self._sealer.receivers:
            if receiver.name not in answers:
                await self._registrar.introduce(link, receiver)
                await self.greet(link, receiver, question=self.question)

    async def greet(
        self,
        link: Link | None,
        receiver: PublicKeys,
        *,
        question: bytes = NO_QUESTION,
        answer: bytes = NO_QUESTION,
    ) -> None:
        """Tell a receiver how far this silo has seen it come, and which models the silo has."""
        if link is None:
            return
        seen = await asyncio.to_thread(self._seen.of, receiver.name)
        models = (await asyncio.to_thread(self._seen.of, self._analyzer.name)).head
        # The head of the silo's own ledger travels with its releases, at their public time. If a greeting had it,
        # anybody who asks often would learn when a release was drawn, so how long it took: more people take longer.
        own = heads.NONE
        greeting = Greeting(FORMAT, FORMAT, question, answer, seen.syncs, seen.head, own, models)
        if question != NO_QUESTION:
            greeting = greeting._replace(lacks=await asyncio.to_thread(self._silo.store.lacks, self._silo.term.number))
        await self._registrar.greet(link, receiver, greeting)

    async def take_in(self, link: Link | None, context: Context, greeting: Greeting) -> None:
        """Note an answer to this silo's question, or answer a question; ask again if the sender may now work under
        another plan or format. If the analyzer has lost an outcome, this silo's release waits for it no longer."""
        mismatch, sender = self._party.differs(context), self._party.agreement.member(context.sender)
        if sender is None or sender.role == "silo":
            return
        if mismatch is None:
            await self._compare_members(link, sender, greeting)
        if mismatch is None and sender == self._analyzer and greeting.lacks is not None:
            await asyncio.to_thread(self._lost, greeting.lacks)
        if greeting.answer != NO_QUESTION:
            asked = await asyncio.to_thread(self._seen.asked, greeting.answer)
            if asked and mismatch is not None and sender == self._analyzer:
                await self._disagreed(mismatch, context.plan)
            if asked and mismatch is None:
                await asyncio.to_thread(self._seen.answered, greeting.answer, sender.name, greeting.encode())
        elif mismatch is not None or not greeting.reads(FORMAT):
            self._sealer.hold(f"{sender.name} may work under another plan or format now; it was asked", "format")
            self.question = NO_QUESTION
        elif sender in self._sealer.receivers:
            await self.greet(link, sender, answer=greeting.question)
        self.answered.set()

    def _lost(self, sync: int) -> None:
        if self._silo.store.no_outcome(self._silo.term.number, sync):
            log.warning("the analyzer has lost the outcome of sync %d: this silo gives up its release", sync)

    async def answers(self) -> dict[str, Greeting]:
        """The answers of all receivers of releases, by party; empty until all of them have answered."""
        answers = await asyncio.to_thread(self._seen.answers, self.question)
        if any(receiver.name not in answers for receiver in self._sealer.receivers):
            return {}
        return {name: Greeting.decode(answer) for name, answer in answers.items()}

    async def judge(self) -> bool:
        """Whether the silo may draw from now on: all have answered, and none has seen more of this silo than the silo
        itself knows. If not, the sealer says why."""
        if not (greetings := await self.answers()):
            return False
        for name, greeting in greetings.items():
            if not greeting.reads(FORMAT):
                self._sealer.hold(f"{name} does not read messages of format {FORMAT}", "format")
                return False
            if self._registrar.ahead(greeting):
                self._sealer.hold(f"{name} has newer members, which this silo has asked for")
                return False
        own = {name: one for name, one in greetings.items() if self._party.is_of(self._party.name, one.seen)}
        known = (self._silo.store, self._silo.term.number, self._silo.plan, own)
        worst = self._registrar.problem or await asyncio.to_thread(further, *known)
        if worst is not None:
            self._sealer.halt(worst)
            return False
        self._sealer.clear()
        return True

    async def _disagreed(self, mismatch: PlanMismatch, theirs: str) -> None:
        """End with the mismatch, unless the analyzer's plan is that of a term that is over here: then the analyzer is
        late, or was put back, and this silo goes on deciding and waits for it."""
        terms = await asyncio.to_thread(self._silo.store.terms)
        if all(term.plan_hash != theirs for term in terms[:-1]):
            raise mismatch
        says = f"{mismatch.sender} works under the plan of a term that is over here: it must take in the new one"
        self._sealer.hold(f"{says} (`federation accept --new-term`)", "format")

    async def _compare_members(self, link: Link | None, sender: PublicKeys, greeting: Greeting) -> None:
        """Send newer editions of the members to a sender who has older ones. Greet a sender who has newer ones: it then
        sees which are missing here."""
        if link is None or sender not in self._sealer.receivers:
            return
        if (after := self._registrar.behind(greeting)) is not None:
            await self._registrar.tell(link, sender, after)
        elif self._registrar.ahead(greeting):
            await self.greet(link, sender)
