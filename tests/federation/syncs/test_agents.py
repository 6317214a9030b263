"""Silos over a real broker: put back to an older state, told nonsense, told two stories."""

import asyncio
import shutil
import sqlite3
import time
from contextlib import contextmanager

import numpy as np
import pytest

from fedbandit.federation.silo import book
from fedbandit.federation.silo.forwarding import OldCopy, bring_forward
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store import SiloStore, open_engine
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.privacy.ledger import verify
from fedbandit.schedule import every
from tests.federation.harness import federation
from tests.federation.small import small_plan
from tests.federation.syncs.test_keepers import NONSENSE as WHOLE

NONSENSE = [data[:2000] for data in WHOLE]  # more the broker does not take
PLAN = small_plan(rounds=8, schedule=every(1), cohort=2)


def run(path, plan, scenario, deadline=60.0, absent=()):
    async def main():
        async with federation(path, plan, deadline, absent) as running:
            await scenario(running)

    asyncio.run(main())


def forged(running, sync, outcome, previous=None):
    """A model that the analyzer has signed, whatever is in it."""
    analyzer = running.homes["analyzer"].party()
    previous = previous or heads.link(bytes(32), f"{analyzer.agreement.id} {running.plan.hash}".encode())
    model = SignedOutcome(outcome, previous, analyzer.signed(sync + 1, heads.link(previous, outcome.encode())))
    return analyzer.seal("model", running.homes["silo-00"].party().public, sync, model.encode())


async def saved(running):
    """A copy of the first silo's store, made while it is stopped."""
    await running.stop("silo-00")
    file = shutil.copy(running.homes["silo-00"].path / "silo.db", running.path / "saved.db")
    await running.start("silo-00")
    return file


async def put_back(running, copy):
    """The first silo runs from an old copy of its store, or from none, until it knows that it does."""
    folder = running.homes["silo-00"].path
    await running.stop("silo-00")
    for left in folder.glob("silo.db*"):
        left.unlink()
    if copy is not None:
        shutil.copy(copy, folder / "silo.db")
    await running.start("silo-00")
    await running.until(lambda: "old copy" in (running.running["silo-00"].problem or ""))


@pytest.mark.parametrize("copy", ["old", "none"])
def test_a_silo_put_back_to_an_older_state_draws_nothing_again(tmp_path, copy):
    """It drew the same releases with new noise, and its ledger said "intact"."""

    async def scenario(running):
        await running.sync(0)
        before = await saved(running)
        await running.sync(1)
        await put_back(running, before if copy == "old" else None)
        silo = running.running["silo-00"]
        known = len(silo.silo.store.ledger())
        await running.batch(2)
        await running.wait(3, ["silo-01", "silo-02"])
        assert running.outcome(2).cohort.tolist() == [0, 1, 1]
        assert len(silo.silo.store.ledger()) == known == (1 if copy == "old" else 0)
        silo.silo.decide([[1.0, 0.0]])  # decisions go on

    run(tmp_path, PLAN, scenario, deadline=3.0)  # long enough that the others see release 1 on a busy machine too


def test_an_old_copy_of_a_silo_is_brought_forward_without_drawing_again(tmp_path):
    """What others have seen of it is missed and spent, once; it takes part again from then on."""

    async def scenario(running):
        home = running.homes["silo-00"]
        await running.sync(0)
        before = await saved(running)
        await running.sync(1)
        await running.sync(2)
        seen = running.running["silo-00"].silo.store.last_entry()
        await put_back(running, before)
        await running.stop("silo-00")
        engine = open_engine(home.path / "silo.db")
        store = SiloStore(engine)
        answers = [Greeting.decode(answer) for answer in SeenStore(engine, "").answers().values()]
        copy = OldCopy(store, PLAN, "silo-00", home.keys.signer, answers)
        assert bring_forward(copy, at=time.time()) == [1, 2]
        assert bring_forward(copy, at=time.time()) == []
        assert [release.state for release in store.releases(1)][1:] == [ReleaseState.GIVEN_UP] * 2
        verify(book.entries(store.ledger()), witnessed=[(seen.number + 1, seen.hash)])
        engine.close()
        await running.start("silo-00")
        await running.sync(3)
        assert running.outcome(3).cohort.tolist() == [1, 1, 1]
        silo = running.running["silo-00"]
        assert silo.problem is None
        spent = book.spending(silo.silo.store.ledger())
        assert (spent.terms[0].released, spent.terms[0].redrawn) == (4, ())
        await running.stop("silo-00")  # and others know it by what it is now
        await running.start("silo-00")
        await running.sync(4)
        assert running.outcome(4).cohort.tolist() == [1, 1, 1]

    run(tmp_path, PLAN, scenario)


def test_a_silo_draws_nothing_before_the_others_have_answered(tmp_path):
    async def scenario(running):
        await running.batch(0)
        await asyncio.sleep(0.5)
        silo = running.running["silo-00"].silo
        assert silo.store.in_state(1, ReleaseState.CLOSED) == [0]
        assert silo.store.ledger() == []
        await running.start("mixer")
        await running.wait(1)

    run(tmp_path, PLAN, scenario, absent=["mixer"])


def test_nobody_draws_for_a_receiver_of_another_format(tmp_path):
    async def scenario(running):
        mixer, silo = running.homes["mixer"].party(), running.running["silo-00"]
        await running.until(lambda: silo.greetings.question != bytes(16))
        other = Greeting(FORMAT + 1, FORMAT + 2, answer=silo.greetings.question).encode()
        await silo.handle([mixer.seal("greeting", silo.party.public, 0, other)])
        await running.until(lambda: "format" in (silo._sealer.held or ""))
        await running.batch(0)
        await asyncio.sleep(0.3)
        assert silo.silo.store.ledger() == []

    run(tmp_path, PLAN, scenario, absent=["mixer"])


def test_no_message_stops_a_silo(tmp_path):
    async def scenario(running):
        await running.sync(0)
        link, silo = running.links["analyzer"], running.running["silo-00"]
        for number, data in enumerate(NONSENSE):
            await link.publish("fb.demo.silo.silo-00", data, f"nonsense {number}")
            await running.links["silo-01"].publish("fb.demo.mixer.silo-01", data, f"nonsense {number}")
            await running.links["silo-01"].publish("fb.demo.analyzer.silo-01", data, f"nonsense {number}")
        await running.sync(1)
        for name in ("silo-00", "mixer", "analyzer"):
            await running.until(lambda name=name: running.running[name].refused.count == len(NONSENSE))
        await running.stop("silo-00")
        await running.start("silo-00")
        await running.sync(2)
        assert running.running["silo-00"].refused.count == 0  # they were acknowledged, and do not come again
        assert silo is not running.running["silo-00"]

    run(tmp_path, PLAN, scenario)


def test_a_model_of_the_last_sync_sent_first_does_not_freeze_the_version(tmp_path):
    async def scenario(running):
        await running.sync(0)
        silo = running.running["silo-00"]
        outcome = Outcome(running.outcome(0).prefix, running.outcome(0).cohort)
        await silo.handle([forged(running, 7, outcome, previous=bytes(32))])
        assert (silo.silo.version, silo.refused.count, silo.problem) == (1, 1, None)
        await running.sync(1)
        assert silo.silo.version == 2

    run(tmp_path, PLAN, scenario)


@pytest.mark.parametrize("number", [-1e300, 1e308, 5e-324, float("nan"), float("inf")])
def test_a_model_of_absurd_numbers_does_not_stop_decisions(tmp_path, number):
    async def scenario(running):
        silo, nobody = running.running["silo-00"], np.zeros(3, dtype=np.int64)
        await silo.handle([forged(running, 0, Outcome(np.full(PLAN.protocol.width, number), nobody))])
        assert silo.silo.version == int(np.isfinite(number))
        silo.silo.decide([[1.0, 0.0]])
        await running.stop("silo-00")
        await running.start("silo-00")
        running.running["silo-00"].silo.decide([[1.0, 0.0]])

    run(tmp_path, PLAN, scenario)


def test_models_that_do_not_follow_each_other_are_noticed(tmp_path):
    """The analyzer has told somebody else another model 0, and goes on from that."""

    async def scenario(running):
        await running.sync(0)
        silo = running.running["silo-00"]
        await silo.handle([forged(running, 1, running.outcome(0), previous=bytes(32))])
        assert "two stories" in silo.problem
        await running.batch(1)
        await asyncio.sleep(0.3)
        assert len(silo.silo.store.ledger()) == 1

    run(tmp_path, PLAN, scenario)


def test_a_model_that_comes_before_the_release_is_drawn_is_taken(tmp_path):
    """The batch is closed and not yet drawn: it ended the process."""

    async def scenario(running):
        await running.cut_off("silo-00")
        silo = running.running["silo-00"].silo
        await running.batch(0)
        silo.store.tick(1, 0, 0, lambda decisions: 1, at=time.time(), clock=("a clock", b""))
        assert silo.store.in_state(1, ReleaseState.CLOSED) == [0]
        await running.wait(1, ["silo-01", "silo-02"])
        await running.start("silo-00")
        await running.wait(1)
        await running.until(lambda: silo.store.in_state(1, ReleaseState.MISSED) == [0])
        await running.sync(1)
        assert running.outcome(1).cohort.tolist() == [1, 1, 1]

    run(tmp_path, PLAN, scenario, deadline=3.0)


def test_the_mixer_hears_which_models_silos_have_though_no_release_follows(tmp_path):
    """After the last sync, and from a silo that has missed one."""
    plan = small_plan(rounds=2, schedule=every(1), cohort=2)

    async def scenario(running):
        await running.cut_off("silo-00")
        await running.batch(0)
        await running.wait(1, ["silo-01", "silo-02"])
        mixer = running.running["mixer"]
        await running.start("silo-00")
        await running.until(lambda: mixer.seen.of("analyzer").head.length == 1)  # nobody has sent a release since
        await running.sync(1)
        await running.until(lambda: mixer.seen.of("analyzer").head.length == 2)
        assert mixer.seen.of("analyzer").head == running.running["analyzer"].own()
        assert mixer.problem is None

    run(tmp_path, plan, scenario, deadline=0.5)


def test_a_release_whose_outcome_is_lost_holds_up_no_later_one(tmp_path):
    """Under trust `silo` a release waits for what became of the one before it. The analyzer was brought forward over a
    sync whose model this silo never got: the silo sent that release for ever, and none after it."""

    async def scenario(running):
        await running.sync(0)
        silo, store = running.running["silo-00"], running.running["silo-00"].silo.store
        await running.stop("analyzer")
        analyzer, receiver = running.homes["analyzer"].party(), silo.party.public

        def says_lost(by, kind_of_sender=analyzer):
            greeting = kind_of_sender.greeting(Greeting(FORMAT, FORMAT, lacks=by))
            return kind_of_sender.seal("greeting", receiver, 0, greeting.encode())

        await running.batch(1)
        await running.until(lambda: store.in_state(1, ReleaseState.SENT) == [1])
        other = running.homes["silo-01"].party()
        await silo.handle([says_lost(1, other), says_lost(0), says_lost(7), says_lost(2)])
        assert store.in_state(1, ReleaseState.SENT) == [1]  # only the analyzer's word counts, and only for that sync
        await running.batch(2)
        await running.until(lambda: store.in_state(1, ReleaseState.DRAWN) == [2])
        await silo.handle([says_lost(1)])
        assert store.in_state(1, ReleaseState.GIVEN_UP) == [1]
        await running.until(lambda: store.in_state(1, ReleaseState.SENT) == [2])
        await running.start("analyzer")
        await running.wait(3)  # the analyzer had lost nothing: its models of both syncs change nothing any more
        assert store.in_state(1, ReleaseState.GIVEN_UP) == [1]
        assert silo.problem is None

    run(tmp_path, PLAN.changed(trust="silo"), scenario, deadline=2.0)


def test_a_silo_that_was_brought_forward_over_the_last_sync_gets_the_last_model(tmp_path):
    """Without it, it could not check what the next term begins with, and could not begin it."""
    plan = small_plan(rounds=2, schedule=every(1), cohort=2)

    async def scenario(running):
        home = running.homes["silo-00"]
        await running.sync(0)
        before = await saved(running)
        await running.sync(1)
        models = running.running["silo-00"].silo.store.models(1)
        await put_back(running, before)
        await running.stop("silo-00")
        engine = open_engine(home.path / "silo.db")
        answers = [Greeting.decode(answer) for answer in SeenStore(engine, "").answers().values()]
        copy = OldCopy(SiloStore(engine), plan, "silo-00", home.keys.signer, answers)
        assert bring_forward(copy, at=time.time()) == [1]
        engine.close()
        await running.start("silo-00")
        await running.wait(2, ["silo-00"])
        assert running.running["silo-00"].silo.store.models(1) == models

    run(tmp_path, plan, scenario, deadline=1.0)


def test_a_greeting_does_not_tell_how_far_a_silo_has_drawn(tmp_path):
    """Releases leave at public times, however long drawing them took; a silo answers greetings at any time."""

    async def scenario(running):
        agent, mixer, told = running.running["silo-00"], running.homes["mixer"].party(), []
        await running.sync(0)
        assert book.length(agent.silo.store.ledger()) == 1

        class Listening:
            async def publish(self, subject, data, message_id):
                told.append(Greeting.decode(mixer.open(data)[1]))

        link, agent.link = agent.link, Listening()
        await agent.greetings.greet(agent.link, mixer.public, answer=bytes(16))
        agent.link = link
        assert [greeting.own for greeting in told] == [heads.NONE]
        assert told[0].models.length == 1

    run(tmp_path, PLAN, scenario)


def test_a_model_is_never_on_disk_without_its_head(tmp_path, monkeypatch):
    """Otherwise an analyzer that is put back, and asks in between, hears that nobody has its model."""

    async def scenario(running):
        agent, found = running.running["silo-00"], []
        engine, transaction = agent.silo.store.engine, agent.silo.store.engine.transaction

        @contextmanager
        def watched(*given, **options):
            with transaction(*given, **options) as sql:
                yield sql
            found.append((agent.seen.of("analyzer").head.length, len(agent.silo.store.models(1))))

        monkeypatch.setattr(engine, "transaction", watched)
        await running.sync(0)
        assert set(found) == {(0, 0), (1, 1)}

    run(tmp_path, PLAN, scenario)


def test_the_head_of_a_model_that_is_refused_stays(tmp_path):
    """The model counts a release that the silo has not drawn, so it is refused; that the analyzer has come so far is
    held against it all the same."""

    async def scenario(running):
        await running.cut_off("silo-00")
        agent = running.running["silo-00"]
        agent.silo.store.tick(1, 0, 0, lambda decisions: 1, at=time.time(), clock=("a clock", b""))
        prefix = np.zeros(PLAN.protocol.width)
        await agent.handle([forged(running, 0, Outcome(prefix, np.ones(PLAN.silos, dtype=np.int64)))])
        assert agent.refused.reasons["IllegalEvent"] == 1
        assert agent.silo.store.models(1) == []
        assert agent.seen.of("analyzer").head.length == 1
        assert "has not sent" in agent.problem

    run(tmp_path, PLAN, scenario)


def test_what_an_earlier_term_left_in_the_queue_stops_nobody(tmp_path):
    async def scenario(running):
        analyzer, silo = running.homes["analyzer"].party(), running.homes["silo-00"].party()
        earlier = type(analyzer)(
            type(analyzer.agreement)(**{**vars_of(analyzer.agreement), "plan": small_plan(rounds=25)}),
            analyzer.keys,
            analyzer.public,
        )
        old_greeting = Greeting(2, 2, question=b"q" * 16).encode()
        for kind, plain in (("greeting", old_greeting), ("model", b"")):
            sealed = earlier.seal(kind, silo.public, 0, plain)
            await running.links["analyzer"].publish("fb.demo.silo.silo-00", sealed, f"left {kind}")
        await running.start("silo-00")
        await running.sync(0)

    run(tmp_path, PLAN, scenario, absent=["silo-00"])


def vars_of(agreement):
    return {name: getattr(agreement, name) for name in agreement.__dataclass_fields__}


def test_heads_of_every_silo_are_on_disk_with_those_it_sends_to(tmp_path):
    async def scenario(running):
        for sync in range(3):
            await running.sync(sync)
        for name in running.silos:
            row = running.running[name].silo.store.last_entry()
            for keeper in ("mixer", "analyzer"):
                seen = running.running[keeper].seen.of(name)
                assert (seen.syncs, seen.head.length, seen.head.hash.hex()) == (3, 3, row.hash)
        assert (
            sqlite3.connect(running.homes["mixer"].store(PLAN.hash))
            .execute("SELECT count(*) FROM states WHERE name LIKE 'seen %analyzer%'")
            .fetchone()[0]
        )

    run(tmp_path, PLAN, scenario)
