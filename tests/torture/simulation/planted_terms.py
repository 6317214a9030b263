"""Bugs of renewals and of stores that are brought forward: mistakes about what must go on, and what must not."""

from __future__ import annotations

from typing import Any

from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo import forwarding
from fedbandit.federation.silo.decisions.tickets import DecisionIds
from fedbandit.federation.silo.greetings import Greetings
from fedbandit.federation.store import SiloStore, SyncStore
from fedbandit.federation.store.rewards import FOR_GOOD
from fedbandit.federation.wire import envelopes
from fedbandit.federation.wire.envelopes import Context, EnvelopeError
from fedbandit.federation.wire.heads import NONE, Greeting, Head
from tests.torture.simulation import node
from tests.torture.simulation.planted import PLANTED, Patch, planted

__all__ = ["PLANTED"]


@planted
def who_was_served_by_raw_data_counts_in_the_next_term(patch: Patch) -> None:
    begin = SiloStore.begin_term

    def forgetful(self: SiloStore, *given: Any) -> Any:
        with self.engine.transaction() as sql:
            sql.all("DELETE FROM opted_out WHERE term = ?", (FOR_GOOD,))
        return begin(self, *given)

    patch.setattr(SiloStore, "begin_term", forgetful)


@planted
def what_was_seen_of_ledgers_is_forgotten_with_a_new_plan(patch: Patch) -> None:
    patch.setattr(node, "take_over", lambda *given: None)


@planted
def only_heads_under_its_newest_keys_are_held_against_a_silo(patch: Patch) -> None:
    judge = Greetings.answers

    async def lenient(self: Greetings) -> dict[str, Greeting]:
        found, newest = await judge(self), self._party.public
        own = {name for name, one in found.items() if one.seen.is_of(self._party.name, newest.verifier)}
        return {name: one if name in own else one._replace(seen=NONE) for name, one in found.items()}

    patch.setattr(Greetings, "answers", lenient)


@planted
def a_silo_that_may_begin_a_new_ledger_is_held_to_the_old_one(patch: Patch) -> None:
    ledger = Agreement.ledger
    patch.setattr(Agreement, "ledger", lambda self, silo: ledger(self, silo)._replace(since=1))


@planted
def what_was_said_in_an_earlier_term_is_taken(patch: Patch) -> None:
    def lenient(self: Party, envelope: bytes) -> tuple[Context, bytes]:
        claim = envelopes.claimed(envelope)
        if not (known := self.roll.keys_of(claim.sender)):
            raise EnvelopeError("a stranger")
        expected = self._context(claim.kind, claim.sender, self.name, claim.sync)._replace(plan=claim.plan)
        return claim, self._unsealed(envelope, expected, known)

    patch.setattr(Party, "open", lenient)


@planted
def decisions_of_an_earlier_term_are_known(patch: Patch) -> None:
    init = DecisionIds.__init__
    patch.setattr(DecisionIds, "__init__", lambda self, secret, scope, dim: init(self, secret, "", dim))


@planted
def the_ledger_begins_anew_with_a_term(patch: Patch) -> None:
    begin = SiloStore.begin_term

    def forgetful(self: SiloStore, *given: Any) -> Any:
        with self.engine.transaction() as sql:
            sql.all("DELETE FROM ledger")
        return begin(self, *given)

    patch.setattr(SiloStore, "begin_term", forgetful)


@planted
def a_silo_that_is_brought_forward_forgets_what_it_spent(patch: Patch) -> None:
    patch.setattr(forwarding, "_entries", lambda *given: ())


@planted
def who_is_brought_forward_begins_a_new_chain(patch: Patch) -> None:
    give_up = SyncStore.give_up

    def forgetful(self: SyncStore, head: Head, *given: Any) -> Any:
        return give_up(self, head._replace(hash=bytes(32)), *given)

    patch.setattr(SyncStore, "give_up", forgetful)


@planted
def what_an_old_copy_took_is_released_after_it_was_brought_forward(patch: Patch) -> None:
    patch.setattr(forwarding, "_doubtful", lambda plan: False)
