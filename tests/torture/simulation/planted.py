"""Bugs to be planted into the real code, each a mistake that somebody could make; the simulation must find them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from fedbandit.federation.http.group import GroupCommit
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.registrar import Registrar
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.silo import greetings, releasing
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.decisions.decider import Decider
from fedbandit.federation.silo.greetings import Greetings
from fedbandit.federation.silo.ticker import Ticker
from fedbandit.federation.states import RELEASE, ReleaseEvent, ReleaseState, SyncEvent
from fedbandit.federation.store import Engine, SiloStore, SyncStore, rewards, silo_store
from fedbandit.federation.store.database import Row, Sql
from fedbandit.federation.store.rewards import OPEN_BATCH, UNSHARED, Judge, Reward
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.syncs import analyzer, mixer
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.deadlines import Deadlines
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.syncs.taken import Taken
from fedbandit.federation.wire import envelopes, messages
from fedbandit.federation.wire.heads import NO_QUESTION, NONE, Greeting
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.repeats import Repeats

__all__ = ["PLANTED"]

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
PLANTED: dict[str, Plant] = {}


def planted(plant: Plant) -> Plant:
    PLANTED[plant.__name__.replace("_", " ")] = plant
    return plant


class _Hasty:
    """An engine whose transactions are not on disk when they return."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def transaction(self, durable: bool = True, letting_go: bool = False) -> AbstractContextManager[Sql]:
        return self._engine.transaction(durable=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _hastily(patch: Patch, owner: type, name: str) -> None:
    """One method of a store that does not wait for the disk."""
    careful = getattr(owner, name)

    def hasty(self: Any, *arguments: Any, **options: Any) -> Any:
        engine = self.engine
        self.engine = _Hasty(engine)
        try:
            return careful(self, *arguments, **options)
        finally:
            self.engine = engine

    patch.setattr(owner, name, hasty)


# -- silos ------------------------------------------------------------------------------------------------------------


@planted
def a_release_is_drawn_again_when_it_is_sent_again(patch: Patch) -> None:
    sealed = Agent._publish

    async def publish(self: Agent, link: Any, sync: int) -> None:
        if self._repeats.said(sync):
            plan, noise = self.plan, self.silo.ticker._noise
            _, message = releasing.draw(plan, plan.protocol.init(), [], noise)
            wire = self._sealer._wire(sync, message, self.seen.of("nobody").head)
            for receiver, envelope in zip(self._sealer.receivers, messages.unpack(wire.sealed), strict=True):
                await link.publish(self.party.subject_to(receiver), envelope, f"again {sync} {receiver.name}")
        await sealed(self, link, sync)

    patch.setattr(Agent, "_publish", publish)


@planted
def a_release_is_sent_before_it_is_on_disk(patch: Patch) -> None:
    _hastily(patch, SiloStore, "draw")
    _hastily(patch, SiloStore, "seal")


@planted
def a_reward_is_acknowledged_before_it_is_on_disk(patch: Patch) -> None:
    async def commit(self: GroupCommit, rewards: list[Reward]) -> Any:
        return self._silo.reward_many(rewards, durable=False)

    patch.setattr(GroupCommit, "_commit", commit)


@planted
def a_reward_that_is_repeated_counts_twice(patch: Patch) -> None:
    class Lenient:
        def __init__(self, sql: Sql) -> None:
            self._sql, self.many = sql, sql.many

        def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
            if "INTO rewarded" in query:
                query += " ON CONFLICT DO NOTHING" if "VALUES" in query else " WHERE true ON CONFLICT DO NOTHING"
            return self._sql.all(query, values)

    insert = rewards.insert
    patch.setattr(silo_store, "known_among", lambda sql, rewards: {})
    patch.setattr(silo_store, "insert", lambda sql, term, judge: insert(cast(Sql, Lenient(sql)), term, judge))


@planted
def a_person_counts_more_often_than_the_cap(patch: Patch) -> None:
    def admit(self: Judge, person: bytes | None, sync: int) -> bool:
        if person is not None:
            self.times[person] = self.times.get(person, 0) + 1
        return True

    patch.setattr(Judge, "_admit", admit)


@planted
def a_reward_enters_a_batch_that_is_closed(patch: Patch) -> None:
    judge = Judge.judge

    def late(self: Judge, reward: Reward) -> Any:
        verdict = judge(self, reward)
        if self.fresh and self.fresh[-1][1] is verdict and verdict.sync:
            verdict = verdict._replace(sync=verdict.sync - 1)
            self.fresh[-1] = (reward, verdict)
        return verdict

    patch.setattr(Judge, "judge", late)


@planted
def one_reward_of_a_batch_is_not_added(patch: Patch) -> None:
    rows = rewards.rows_of
    patch.setattr(silo_store, "rows_of", lambda *given: list(rows(*given))[:-1])


@planted
def raw_rows_stay_after_the_release(patch: Patch) -> None:
    draw = SiloStore.draw
    patch.setattr(
        SiloStore, "draw", lambda self, *given, **options: draw(self, *given, **{**options, "keep_raw": True})
    )


@planted
def a_release_is_not_in_the_ledger(patch: Patch) -> None:
    draw = SiloStore.draw

    def silently(
        self: SiloStore, term: int, sync: int, drawn: bytes, encoder: bytes, entry: Any, **options: Any
    ) -> None:
        draw(self, term, sync, drawn, encoder, entry if sync == 0 else None, **options)

    patch.setattr(SiloStore, "draw", silently)


@planted
def a_batch_that_was_closed_before_a_crash_is_never_drawn(patch: Patch) -> None:
    init = Ticker.__init__

    def forgetful(self: Ticker, *given: Any, **options: Any) -> None:
        init(self, *given, **options)
        self._unfinished = False

    patch.setattr(Ticker, "__init__", forgetful)
    in_state = SiloStore.in_state

    def only_newest(self: SiloStore, term: int, state: ReleaseState) -> list[int]:
        found = in_state(self, term, state)
        return (
            [sync for sync in found if sync == self.term(term).open_sync - 1] if state is ReleaseState.CLOSED else found
        )

    patch.setattr(SiloStore, "in_state", only_newest)


@planted
def a_release_counts_as_sent_before_it_is(patch: Patch) -> None:
    publish = Agent._publish

    async def hasty(self: Agent, link: Any, sync: int) -> None:
        self.silo.store.acknowledged(self.silo.term.number, sync)
        await publish(self, link, sync)

    patch.setattr(Agent, "_publish", hasty)


@planted
def an_old_copy_of_a_silo_draws(patch: Patch) -> None:
    patch.setattr(greetings, "further", lambda *known: None)


@planted
def a_silo_draws_before_it_has_asked(patch: Patch) -> None:
    init = Agent.__init__

    def eager(self: Agent, *given: Any, **options: Any) -> None:
        init(self, *given, **options)
        self._sealer.clear()

    patch.setattr(Agent, "__init__", eager)


@planted
def a_question_is_asked_before_it_is_on_disk(patch: Patch) -> None:
    ask = Greetings.ask

    async def early(self: Greetings, link: Link | None) -> None:
        if self.question == NO_QUESTION:
            self.question = os.urandom(len(NO_QUESTION))
            self._ask_at = self._steady()
            self._seen.ask(self.question)
        await ask(self, link)

    patch.setattr(Greetings, "ask", early)


@planted
def the_version_of_the_model_is_off_by_one(patch: Patch) -> None:
    use = Decider.use
    patch.setattr(Decider, "use", lambda self, version, model: use(self, 2 if version == 1 else version, model))


@planted
def a_model_that_comes_twice_is_a_conflict(patch: Patch) -> None:
    outcome = SiloStore.outcome

    def once(self: SiloStore, term: int, sync: int, *given: Any) -> bool:
        return sync not in [known for known, _ in self.models(term)] and outcome(self, term, sync, *given)

    patch.setattr(SiloStore, "outcome", once)


@planted
def somebody_who_opts_out_counts(patch: Patch) -> None:
    judge = Judge.judge

    def anyway(self: Judge, reward: Reward) -> Any:
        return judge(self, reward._replace(place=OPEN_BATCH) if reward.place == UNSHARED else reward)

    patch.setattr(Judge, "judge", anyway)


@planted
def who_has_opted_out_is_forgotten(patch: Patch) -> None:
    patch.setattr(rewards, "opted_out", lambda sql, term, people: set())


@planted
def a_model_is_illegal_while_a_batch_is_closed_and_not_drawn(patch: Patch) -> None:
    patch.setitem(RELEASE[ReleaseState.CLOSED], ReleaseEvent.OUTCOME_WITHOUT, None)


@planted
def a_silo_without_a_release_does_not_say_which_models_it_has(patch: Patch) -> None:
    async def silent(self: Agent) -> None:
        """Nobody hears of it."""

    patch.setattr(Agent, "_tell_models", silent)


# -- mixer and analyzer -----------------------------------------------------------------------------------------------


@planted
def there_is_no_smallest_cohort(patch: Patch) -> None:
    def closing(present: Sequence[str], silos: Sequence[str], cohort: int, late: bool) -> SyncEvent | None:
        if len(present) == len(silos):
            return SyncEvent.COMPLETE
        return SyncEvent.DEADLINE_ENOUGH if late and present else None

    patch.setattr(mixer, "closing", closing)
    patch.setattr(analyzer, "closing", closing)


@planted
def signatures_are_not_checked(patch: Patch) -> None:
    def unseal(envelope: bytes, expected: Any, sender: Any, receiver: Any) -> bytes:
        header, rest = envelope[: envelopes._HEADER.size], envelope[envelopes._HEADER.size :]
        return bytes(envelopes._SUITE.decrypt(rest[envelopes.SIGNATURE_BYTES :], receiver, info=header))

    patch.setattr(envelopes, "unseal", unseal)


@planted
def messages_for_later_syncs_are_taken(patch: Patch) -> None:
    patch.setattr(Deadlines, "check", lambda self, sync: None)


@planted
def the_deadline_runs_from_a_message_for_a_later_sync(patch: Patch) -> None:
    def passed(self: Deadlines, sync: int) -> bool:
        if sync not in self._begun:
            if not self._store.senders(sync) and not self._store.senders_after(sync):
                return False
            self._begun[sync] = self._steady()
        return self._steady() - self._begun[sync] > self._timing.deadline

    patch.setattr(Deadlines, "passed", passed)


@planted
def there_is_hardly_any_deadline(patch: Patch) -> None:
    passed = Deadlines.passed

    def soon(self: Deadlines, sync: int) -> bool:
        return passed(self, sync) or (sync in self._begun and self._steady() > self._begun[sync] + 1)

    patch.setattr(Deadlines, "passed", soon)


@planted
def an_old_copy_of_a_mixer_or_an_analyzer_goes_on(patch: Patch) -> None:
    patch.setattr(SyncKeeper, "_compare", lambda self, seen: None)


@planted
def a_result_is_sent_before_it_is_on_disk(patch: Patch) -> None:
    _hastily(patch, SyncStore, "close")


@planted
def a_result_counts_as_sent_before_it_is(patch: Patch) -> None:
    publish = SyncKeeper._publish

    async def hasty(self: SyncKeeper, closed: StoredSync) -> None:
        self.store.published(closed.sync)
        await publish(self, closed)

    patch.setattr(SyncKeeper, "_publish", hasty)


@planted
def a_message_that_cannot_be_read_ends_the_process(patch: Patch) -> None:
    def opened(self: SyncKeeper, envelope: bytes) -> Taken:
        context, payload = self.party.open(envelope)
        if context.kind == "greeting":
            return Taken(context, greeting=Greeting.decode(payload))
        return self.accept(context, payload)

    patch.setattr(SyncKeeper, "_opened", opened)


@planted
def a_full_disk_ends_a_mixer_or_an_analyzer(patch: Patch) -> None:
    async def deterred(self: SyncKeeper, work: Any) -> None:
        await work()

    patch.setattr(SyncKeeper, "_undeterred", deterred)


@planted
def nothing_is_ever_said_again(patch: Patch) -> None:
    patch.setattr(Repeats, "due", lambda self, key: False)


@planted
def the_analyzer_says_what_it_holds_anew_each_time(patch: Patch) -> None:
    remember = SyncStore.remember

    def forget(self: SyncStore, key: str, value: bytes) -> bytes:
        return value if key.startswith("holds") else remember(self, key, value)

    patch.setattr(SyncStore, "remember", forget)


@planted
def nobody_says_that_an_outcome_is_lost(patch: Patch) -> None:
    async def silent(self: Analyzer, given_up: StoredSync, only: str) -> None:
        return None

    patch.setattr(Analyzer, "lost", silent)


@planted
def who_was_brought_forward_is_not_sent_the_newest_model(patch: Patch) -> None:
    async def deaf(self: Analyzer, sender: PublicKeys, sync: int, question: bytes) -> None:
        return None

    patch.setattr(Analyzer, "supply", deaf)


@planted
def answers_leave_out_what_was_seen(patch: Patch) -> None:
    encode = Greeting.encode

    def forgetful(self: Greeting) -> bytes:
        return encode(self._replace(syncs=0, seen=NONE) if self.answer != NO_QUESTION else self)

    patch.setattr(Greeting, "encode", forgetful)


@planted
def the_mixer_counts_in_whom_the_analyzer_does_not_hold(patch: Patch) -> None:
    close = Mixer.close

    def alone(self: Mixer, sync: int, late: bool) -> SyncEvent | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Mixer, "_waits_for_holds", False)
            return close(self, sync, late)

    patch.setattr(Mixer, "close", alone)


@planted
def nobody_compares_what_the_analyzer_has_told_others(patch: Patch) -> None:
    patch.setattr(SyncKeeper, "_contradicted", lambda self, party: None)


@planted
def a_silo_that_was_dismissed_is_counted(patch: Patch) -> None:
    patch.setattr(Roll, "at", lambda self, sync: self.charter)


@planted
def what_is_kept_is_sent_under_keys_that_were_replaced(patch: Patch) -> None:
    patch.setattr(Party, "resigned", lambda self, sync, envelope: envelope)


@planted
def editions_are_passed_on_under_keys_that_nobody_has_heard_of(patch: Patch) -> None:
    patch.setattr(Party, "_oldest", Party.keys)


@planted
def a_party_greets_under_keys_that_nobody_has_heard_of(patch: Patch) -> None:
    async def silent(self: Registrar, *given: Any) -> None:
        return None

    patch.setattr(Registrar, "introduce", silent)
