"""Editions that have reached some of the parties: keys of mixer and analyzer change, and whoever hears late goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.federation import recovery
from fedbandit.federation.post_office import PostOffice
from fedbandit.federation.process import bind
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.home import FEDERATION, MEMBERS, Home
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import EditionError, Roll, write_editions
from fedbandit.federation.silo import book
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.forwarding import begin_at
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.terms import check_begins, end_term
from fedbandit.federation.states import SyncState
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.store.seen import Seen
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.deadlines import Deadlines
from fedbandit.federation.syncs.progress import Progress
from fedbandit.federation.syncs.taken import Arrived
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT, EnvelopeError
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.federation.wire.subjects import Consumer
from fedbandit.knowledge import prior_of
from tests.federation.small import small_plan
from tests.federation.test_members import PLAN, Meeting, dismissal, founded, meet, newcomer


def rotation(post: Meeting, name: str, from_sync: int = 1) -> Edition:
    """New keys of a party, which it has on its disk from now on."""
    card = post.homes[name].new_keys()
    post.parties[name].add_keys(post.homes[name].later_keys())
    return Edition(1, "", from_sync, "rotate", name, card)


@pytest.mark.parametrize("name", ["mixer", "analyzer"])
def test_new_keys_of_a_keeper_reach_everybody(name: str, tmp_path: Path) -> None:
    """The analyzer passes on that its own keys have changed, too, to parties that know it by the old ones."""

    async def scenario(post: Meeting) -> None:
        await post.change(rotation(post, name))
        await post.deliver()
        assert {keeper.party.roll.number for keeper in post.keepers.values()} == {1}
        for sync in (0, 1):
            for silo in post.silos:
                post.release(silo, sync)
            await post.deliver()
        assert post.outcomes() == [[1, 1, 1, 1]] * 2

    meet(tmp_path, scenario)


def test_a_mixer_that_hears_late_of_its_new_keys_stops_nobody(tmp_path: Path) -> None:
    """Its total was signed with the old ones by then, and it makes no second one."""

    async def scenario(post: Meeting) -> None:
        await post.change(rotation(post, "mixer", 0))
        post.queues["mixer"].clear()  # what it would hear of it
        for silo in post.silos:
            post.release(silo, 0)
        await post.keepers["analyzer"].handle(post.office.take("analyzer"))
        await post.keepers["mixer"].handle(post.office.take("mixer"))
        await post.keepers["mixer"].adopt(founding.roll_of(tmp_path).editions)
        await post.deliver()
        total = post.keepers["mixer"].store.at(0).value
        for _ in range(3):
            await post.pass_time(11.0)
        assert post.keepers["mixer"].store.at(0).value == total
        assert post.outcomes() == [[1, 1, 1, 1]]

    meet(tmp_path, scenario)


def test_an_edition_counts_for_what_comes_with_it(tmp_path: Path) -> None:
    """It stands before a release of the party that it is about, in one bundle of messages."""

    async def scenario(post: Meeting) -> None:
        await post.change(rotation(post, "silo-00", 0), tell=())
        edition = founding.roll_of(tmp_path).editions[0]
        for keeper in post.keepers.values():
            other = post.parties["silo-01"]
            post.queues[keeper.party.name].append(other.seal("members", keeper.party.public, 1, edition.encode()))
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        assert post.outcomes() == [[1, 1, 1, 1]]

    meet(tmp_path, scenario)


def test_signed_nonsense_is_refused_and_done_with(tmp_path: Path) -> None:
    """Whatever the operator signs, it neither stays in a queue nor ends a process."""

    async def scenario(post: Meeting) -> None:
        analyzer = post.keepers["analyzer"]
        roll, signer = analyzer.party.roll, post.operator.signer
        card = newcomer().party
        assert card is not None
        for change in (
            Edition(1, "", 1, "rotate", "nobody", replace(card, name="nobody")),
            Edition(1, "", 1, "rotate", "silo-00", replace(card, name="silo-00", mlkem=b"\xff" * 1184)),
            Edition(1, "", 1, "rotate", "silo-00", replace(card, name="silo-00", role="mixer")),
            Edition(1, "", 1, "rotate", "silo-00", roll.newest.party("silo-00")),
            Edition(1, "", 1, "operator", operator=b"short", signer=b"short"),
        ):
            signed = replace(change, number=1, previous=roll.hash).signed(signer)
            sealed = post.parties["silo-00"].seal("members", analyzer.party.public, 1, signed.encode())
            async with asyncio.timeout(5.0):
                await analyzer.handle([sealed])
            with pytest.raises(EditionError):
                roll.take(signed)
        assert (roll.number, analyzer.refused.reasons["EditionError"], analyzer.problem) == (0, 5, None)

    meet(tmp_path, scenario)


def test_a_silo_that_is_to_leave_takes_part_until_then(tmp_path: Path) -> None:
    """It is answered when it greets, though the newest list has it no more."""

    async def scenario(post: Meeting) -> None:
        await post.change(dismissal("silo-03", 2))
        await post.deliver()
        silo, analyzer = Home.load(tmp_path / "silo-03").party(), post.keepers["analyzer"]
        asks = Greeting(FORMAT, FORMAT, question=b"q" * 16, members=bytes.fromhex(silo.roll.hash))
        post.queues["silo-03"].clear()
        await analyzer.handle([silo.seal("greeting", analyzer.party.public, 0, asks.encode())])
        kinds = [silo.open(sealed)[0].kind for sealed in post.queues["silo-03"]]
        assert kinds == ["members", "greeting"]

    meet(tmp_path, scenario)


@pytest.mark.parametrize("rotated", [False, True])
def test_a_silo_that_has_left_hears_of_it_from_an_analyzer_that_was_killed(rotated: bool, tmp_path: Path) -> None:
    """It had taken the editions, and ended before anybody was told; it may have new keys by then."""

    async def scenario(post: Meeting) -> None:
        changes = [*([rotation(post, "analyzer")] if rotated else []), dismissal("silo-03", 2)]
        roll = await post.change(*changes, tell=())
        silo = Home.load(tmp_path / "silo-03").party()
        post.keepers["analyzer"].registrar.adopt(roll.editions)
        post.begin("analyzer")
        post.queues["silo-03"].clear()
        await post.keepers["analyzer"].greet()
        first = silo.open(post.queues["silo-03"][0])[0]
        assert first.kind == ("members" if rotated else "greeting")

    meet(tmp_path, scenario)


def test_keys_are_used_once(tmp_path: Path) -> None:
    """Those of a silo that has left, or that were replaced, are believed for nobody any more, under no name."""
    roll, keys = founded(tmp_path)
    gone, fresh = roll.newest.party("silo-00"), PartyKeys.generate().public("silo-01", "silo")
    first = roll.newest.party("silo-01")
    roll.next(dismissal("silo-00"), keys.signer)
    roll.next(Edition(1, "", 1, "rotate", "silo-01", fresh), keys.signer)
    for card in (gone, first, fresh):
        for again in (
            Edition(1, "", 1, "admit", "again", replace(card, name="again")),
            Edition(1, "", 1, "rotate", "silo-02", replace(card, name="silo-02")),
        ):
            with pytest.raises(EditionError, match="never been in use"):
                roll.next(again, keys.signer)
    with pytest.raises(EditionError, match="never been in use"):
        roll.next(Edition(1, "", 1, "rotate", "silo-01", first), keys.signer)


def test_whoever_has_missed_an_edition_asks_for_it(tmp_path: Path) -> None:
    """The next one is refused; it is not for good."""

    async def scenario(post: Meeting) -> None:
        mixer = post.keepers["mixer"]
        await post.change(dismissal("silo-03", 2))
        post.queues["mixer"].clear()
        await post.change(rotation(post, "silo-00", 2))
        await post.deliver()
        assert mixer.party.roll.number == 2
        asked = len(post.office.to_mixer)
        far = replace(founding.roll_of(tmp_path).editions[0], number=9, previous="00").signed(post.operator.signer)
        for _ in range(3):  # what nobody has is asked for once
            sealed = post.parties["silo-01"].seal("members", mixer.party.public, 9, far.encode())
            await mixer.handle([sealed])
            await post.deliver()
        assert len(post.office.to_mixer) == asked

    meet(tmp_path, scenario)


def test_what_a_dismissed_silo_has_sent_before_makes_up_no_number(tmp_path: Path) -> None:
    """The analyzer has it on disk when it hears of the dismissal, and goes on waiting for those who are members."""

    async def scenario(post: Meeting) -> None:
        analyzer = post.keepers["analyzer"]
        for silo in ("silo-00", "silo-01", "silo-03"):
            post.release(silo, 0)
        await analyzer.take(post.office.take("analyzer"))
        await post.change(dismissal("silo-03", 0))
        await post.deliver()
        assert post.outcomes() == []
        post.release("silo-02", 0)
        await post.deliver()
        assert post.outcomes() == [[1, 1, 1, 0]]

    meet(tmp_path, scenario)


def test_one_silo_that_joins_later_starts_no_deadline(tmp_path: Path) -> None:
    """It is further than all others, and no member of the next sync: still one silo."""
    roll, keys = founded(tmp_path / "free")
    edition = roll.next(replace(newcomer(), from_sync=2), keys.signer)
    engine = open_engine(tmp_path / "analyzer.db")
    store = SyncStore(engine)
    party = Party.member(roll.charter, Home.load(tmp_path / "free" / "analyzer").keys, "analyzer", "analyzer")
    party.roll.take(edition)
    deadlines = Deadlines(party, store, lambda: 0.0, lambda: 0.0)
    store.receive([Arrived(2, "late", b"")])
    assert not deadlines.passed(0)
    assert not deadlines._begun
    store.receive([Arrived(2, "silo-00", b"")])
    deadlines.passed(0)
    assert deadlines._begun  # two are a cohort
    engine.close()


def test_an_agent_tells_a_keeper_that_greets_with_replaced_keys(tmp_path: Path) -> None:
    """A silo was given the file; the analyzer, whose keys it replaces, was not."""
    founded(tmp_path)
    analyzer = Home.load(tmp_path / "analyzer")
    behind, card = analyzer.party(), analyzer.new_keys()
    roll = founding.change(tmp_path, Edition(1, "", 1, "rotate", "analyzer", card))
    party = Home.load(tmp_path / "silo-00").party()
    party.roll.take(roll.editions[0])
    behind.add_keys(analyzer.later_keys())
    office = PostOffice(roll.charter)

    async def main() -> list[bytes]:
        sealer = Sealer(party)
        with Silo.open(tmp_path / "s.db", PLAN, name="silo-00", secret=b"s" * 32, sealer=sealer) as silo:
            agent = Agent(silo, party, sealer)
            agent.link = cast(Link, office)
            await agent.handle([behind.seal("greeting", party.public, 0, Greeting(FORMAT, FORMAT).encode())])
        return office.take("analyzer")

    told = [behind.open(sealed) for sealed in asyncio.run(main())]
    assert [(context.kind, Edition.decode(payload)) for context, payload in told] == [("members", roll.editions[0])]


def test_a_silo_that_joins_has_lost_nothing(tmp_path: Path) -> None:
    """Whatever its clock says later: decisions from before it joined there are none."""
    with Silo.open(tmp_path / "late.db", PLAN, name="late", secret=b"s" * 32, since=2) as silo:
        assert silo.store.issuers(silo.term.number, b"issuer") is None


class Answering:
    """A link to the keepers of a federation, who answer a silo's question with what they have seen of it."""

    def __init__(self, path: Path, silo: Party, seen: dict[str, Seen]) -> None:
        self._keepers = [Home.load(path / name).party() for name in ("analyzer", "mixer")]
        self._silo, self._seen, self._answers = silo, seen, list[bytes]()

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        for keeper in self._keepers:
            keeper.roll = self._silo.roll
            with contextlib.suppress(EnvelopeError):
                context, payload = keeper.open(data)
                if context.kind == "greeting":
                    asked = Greeting.decode(payload).question
                    seen = self._seen[keeper.name]
                    answer = Greeting(FORMAT, FORMAT, answer=asked, syncs=seen.syncs, seen=seen.head)
                    sealed = keeper.seal("greeting", self._silo.public, 0, keeper.greeting(answer).encode())
                    self._answers.append(sealed)

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        while True:
            taken, self._answers = self._answers, []
            await handle(taken)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("both", [True, False])
def test_a_silo_that_joined_and_lost_its_store_is_brought_forward_from_where_it_joined(
    both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one of its receivers had seen nothing of it yet, it was refused, as one that had lost an earlier ledger. Else
    it was brought forward from sync 0 on, by one sync for each of its releases: the ledger named a sync before it
    joined, and nothing was ever drawn again."""
    founded(tmp_path)
    late = Home.create(tmp_path / "late", name="late", role="silo")
    Agreement.load(tmp_path / FEDERATION).save(late.path / FEDERATION)
    roll = founding.change(tmp_path, Edition(1, "", 2, "admit", "late", late.public))
    write_editions(late.path / MEMBERS, roll.editions)
    party = late.party()
    sealer = Sealer(party)
    sealer.clear()
    opened = partial(Silo.open, plan=PLAN, name="late", secret=late.salt, sealer=sealer, since=2)
    with opened(tmp_path / "lost.db") as silo:
        for _ in range(5):
            silo.reward(silo.decide([[1.0, 0.0]]).id, 0.5)
        assert silo.tick() == [2]
        seen = Seen(3, book.head(silo.store.last_entry()))

    @asynccontextmanager
    async def connected(*given: object) -> AsyncIterator[Answering]:
        yield Answering(tmp_path, party, {"analyzer": seen, "mixer": seen if both else Seen()})

    monkeypatch.setattr(recovery, "_connected", connected)
    found = asyncio.run(recovery.recover(late, agreed=True))
    assert (found.syncs, found.done) == ((2,), True)
    with opened(late.store(PLAN.hash)) as silo:
        (entry,) = book.entries(silo.store.ledger())
        assert entry.event.sync == 2
        assert silo.ticker.open_sync == 3
        for _ in range(5):
            silo.reward(silo.decide([[1.0, 0.0]]).id, 0.5)
        assert silo.tick() == [3]


def test_what_one_worker_of_a_silo_hears_the_others_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go to one of them; another one may draw and sign."""
    roll, keys = founded(tmp_path)
    heard, other = (Home.load(tmp_path / "silo-00").party() for _ in range(2))
    sealer = Sealer(other)
    with Silo.open(tmp_path / "s.db", PLAN, name="silo-00", secret=b"s" * 32, sealer=sealer) as silo:
        draws, hears = Agent(silo, other, sealer), Agent(silo, heard, Sealer(heard))
        asyncio.run(hears.adopt([roll.next(dismissal("silo-00", 0), keys.signer)]))
        assert draws.party.is_member(0)
        monkeypatch.setattr(type(silo.store.engine), "shared", True)
        draws._look()
        assert not draws.party.is_member(0)


@pytest.mark.parametrize("learnt", [False, True])
def test_a_silo_that_has_left_may_come_back_in_the_next_term(learnt: bool, tmp_path: Path) -> None:
    """With its ledger, though its last term has releases that it never made, and a last model that nobody sent it."""
    roll, keys = founded(tmp_path)
    home = Home.load(tmp_path / "silo-00")
    party = home.party()
    store = home.store(PLAN.hash)
    with Silo.open(store, PLAN, name="silo-00", secret=home.salt) as silo:
        bind(silo.store.engine, roll.charter)
        party.roll.tie(silo.store.remember, silo.store.recall)
        begin_at(silo.store, PLAN, silo.term, 1, at=0.0)
    prior = prior_of(PLAN, 3, np.ones(5)) if learnt else None
    following = PLAN.changed(rounds=40, prior=prior)
    with pytest.raises(ArgumentError, match="must wait"):
        Silo.open(store, following, name="silo-00", secret=home.salt, new_term=True)
    with Silo.open(store, PLAN, name="silo-00", secret=home.salt) as silo:
        party.roll.tie(silo.store.remember, silo.store.recall)
        party.roll.take(roll.next(dismissal("silo-00"), keys.signer))
    with Silo.open(store, following, name="silo-00", secret=home.salt, new_term=True) as silo:
        assert silo.term.number == 2


def test_a_silo_that_joined_begins_with_a_model_of_before_it_joined(tmp_path: Path) -> None:
    """The term was renewed when it had just joined: nobody would ever send it that model, and it was refused for good.
    A model that it was sent must be the one that it was sent."""
    roll, keys = founded(tmp_path)
    store, width = tmp_path / "late.db", PLAN.protocol.width
    with Silo.open(store, PLAN, name="late", secret=b"s" * 32) as silo:
        bind(silo.store.engine, roll.charter)
        begin_at(silo.store, PLAN, silo.term, len(PLAN.times), at=0.0)
        silo.learn(1, Outcome(np.ones(width), np.array([1, 1, 0, 0])), False)
        check = partial(check_begins, silo.store, silo="late")
        ones = np.ones(width)
        before, sent, other = prior_of(PLAN, 0, 2 * ones), prior_of(PLAN, 1, ones), prior_of(PLAN, 1, 2 * ones)
        end_term(silo.store)
        check(PLAN.changed(rounds=40, prior=sent))
        for prior in (before, other):
            with pytest.raises(ArgumentError, match="must be a model of the last term"):
                check(PLAN.changed(rounds=40, prior=prior))
        roll.next(newcomer(), keys.signer)
        roll.tie(silo.store.remember, silo.store.recall)
        check(PLAN.changed(rounds=40, prior=before))
        with pytest.raises(ArgumentError, match="must be a model of the last term"):
            check(PLAN.changed(rounds=40, prior=other))


def test_an_analyzer_that_draws_waits_for_nobody_who_is_still_to_join(tmp_path: Path) -> None:
    """All members of the next sync must have said what they have seen, and whoever joins later has seen nothing."""
    roll, keys = founded(tmp_path, small_plan(silos=4, cohort=2, trust="central"))
    party, office = Home.load(tmp_path / "analyzer").party(), PostOffice(roll.charter)
    engine = open_engine(tmp_path / "analyzer.db")
    analyzer = Analyzer(party, SyncStore(engine), office)

    async def asked_and_answered() -> None:
        await analyzer.greet()
        for name in roll.charter.silos:
            assert not analyzer.answered
            silo = Home.load(tmp_path / name).party()
            (sealed,) = office.take(name)
            answer = Greeting(FORMAT, FORMAT, answer=Greeting.decode(silo.open(sealed)[1]).question)
            await analyzer.handle([silo.seal("greeting", party.public, 0, silo.greeting(answer).encode())])

    asyncio.run(asked_and_answered())
    assert analyzer.answered
    party.roll.take(roll.next(replace(newcomer(), from_sync=1), keys.signer))
    party.roll.take(roll.next(dismissal("silo-00", 1), keys.signer))
    assert analyzer.answered
    again = Analyzer(party, SyncStore(engine), office)
    assert ([one.name for one in again.asks.parties], again.asks.answers) == (list(roll.charter.silos), 3)
    engine.close()


def test_who_knows_newer_members_is_asked_again_by_a_keeper(tmp_path: Path) -> None:
    """An analyzer put back to before a silo joined must ask that silo too, and had done with asking."""
    roll, _ = founded(tmp_path, small_plan(silos=4, cohort=2, trust="central"))
    party, office = Home.load(tmp_path / "analyzer").party(), PostOffice(roll.charter)
    engine = open_engine(tmp_path / "analyzer.db")
    analyzer = Analyzer(party, SyncStore(engine), office)

    async def asked_and_answered(edition: int) -> None:
        await analyzer.greet()
        for name in roll.charter.silos:
            silo = Home.load(tmp_path / name).party()
            question = Greeting.decode(silo.open(office.take(name)[-1])[1]).question
            answer = silo.greeting(Greeting(FORMAT, FORMAT, answer=question))._replace(edition=edition)
            await analyzer.handle([silo.seal("greeting", party.public, 0, answer.encode())])

    asyncio.run(asked_and_answered(1))
    assert not analyzer.answered
    asyncio.run(asked_and_answered(0))
    assert analyzer.answered
    engine.close()


def test_who_joins_has_missed_nothing_before(tmp_path: Path) -> None:
    roll, keys = founded(tmp_path)
    roll.next(replace(newcomer(), from_sync=2), keys.signer)
    syncs = [StoredSync(sync, SyncState.PUBLISHED, ("silo-00", "silo-01"), b"") for sync in range(3)]
    progress = Progress.of(syncs, lambda sync: roll.at(sync).silos)
    assert progress.missed == {"silo-00": 0, "silo-01": 0, "silo-02": 3, "late": 1}


def test_a_silo_without_the_keys_it_is_known_by_spends_nothing(tmp_path: Path) -> None:
    """They were made in another copy of its directory, say."""
    roll, keys = founded(tmp_path)
    party = Home.load(tmp_path / "silo-00").party()
    sealer = Sealer(party)
    sealer.clear()
    other = PartyKeys.generate().public("silo-00", "silo")
    with Silo.open(tmp_path / "s.db", PLAN, name="silo-00", secret=b"s" * 32, sealer=sealer) as silo:
        agent = Agent(silo, party, sealer)
        asyncio.run(agent.adopt([roll.next(Edition(1, "", 0, "rotate", "silo-00", other), keys.signer)]))
        for _ in range(5):
            silo.reward(silo.decide([[1.0, 0.0]]).id, 0.5)
        assert silo.tick() == []
        assert silo.store.ledger() == []
        assert "does not have" in (agent.problem or "")


def test_what_was_sent_under_replaced_keys_is_held_against_a_copy_that_is_put_back(tmp_path: Path) -> None:
    """A silo that hears late of its new keys has drawn under the old ones. Its release counts for nothing, and yet the
    others have it: put back, it must not draw it again."""

    async def scenario(post: Meeting) -> None:
        silo = Home.load(tmp_path / "silo-00").party()
        await post.change(rotation(post, "silo-00", 0))
        await post.deliver()
        post.parties["silo-00"] = silo  # it has not heard of it
        post.release("silo-00", 0, ledger=silo.signed(1, b"l" * 32))
        for name, keeper in post.keepers.items():
            await keeper.handle(post.office.take(name))
            assert keeper.store.senders(0) == set()
            assert keeper.seen.of("silo-00").head.length == 1

    meet(tmp_path, scenario)


def test_a_model_under_replaced_keys_is_held_against_the_analyzer(tmp_path: Path) -> None:
    founded(tmp_path)
    analyzer = Home.load(tmp_path / "analyzer")
    behind = analyzer.party()
    roll = founding.change(tmp_path, Edition(1, "", 0, "rotate", "analyzer", analyzer.new_keys()))
    party = Home.load(tmp_path / "silo-00").party()
    party.roll.take(roll.editions[0])
    outcome = Outcome(np.zeros(PLAN.protocol.width), np.zeros(PLAN.silos, dtype=np.int64))
    model = SignedOutcome(outcome, bytes(32), behind.signed(1, heads.link(bytes(32), outcome.encode())))
    sealer = Sealer(party)
    with Silo.open(tmp_path / "s.db", PLAN, name="silo-00", secret=b"s" * 32, sealer=sealer) as silo:
        agent = Agent(silo, party, sealer)
        for payload in (b"nonsense", model.encode()):
            asyncio.run(agent.handle([behind.seal("model", party.public, 0, payload)]))
        assert agent.seen.of("analyzer").head == model.head
        assert silo.version == 0


def test_two_lists_of_one_number_are_not_forgotten(tmp_path: Path) -> None:
    """Whoever holds the proof goes on with nothing, and a restart changes nothing about it."""

    async def scenario(post: Meeting) -> None:
        roll = await post.change(dismissal("silo-03"))
        second = replace(roll.editions[0], from_sync=2).signed(post.operator.signer)
        await post.keepers["analyzer"].adopt([second])
        assert "exists twice" in (post.keepers["analyzer"].problem or "")
        post.parties["analyzer"] = post.homes["analyzer"].party()
        post.begin("analyzer")
        assert "exists twice" in (post.keepers["analyzer"].problem or "")
        assert "exists twice" in (post.keepers["analyzer"].store.problem() or "")
        assert not post.keepers["analyzer"].ready

    meet(tmp_path, scenario)
    founded(tmp_path / "silo")
    operator = PartyKeys.load(tmp_path / "silo" / founding.OPERATOR_KEYS)
    for _ in range(2):
        party = Home.load(tmp_path / "silo" / "silo-00").party()
        sealer = Sealer(party)
        with Silo.open(tmp_path / "s.db", PLAN, name="silo-00", secret=b"s" * 32, sealer=sealer) as silo:
            agent = Agent(silo, party, sealer)
            if not party.roll.number:
                first = Roll(party.roll.charter).next(dismissal("silo-01"), operator.signer)
                asyncio.run(agent.adopt([first, replace(first, from_sync=2).signed(operator.signer)]))
            assert "exists twice" in (agent.registrar.problem or "")
