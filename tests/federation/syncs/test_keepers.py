"""What a mixer and an analyzer do with messages that are early, one-sided, stale, contradictory or nonsense."""

import asyncio

import numpy as np
import pytest

from fedbandit.federation.store import SyncStore
from fedbandit.federation.syncs import analyzer as analyzers
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.parcels import Holds, Mixed, Outcome, Parcel
from fedbandit.schedule import clock, every
from tests.federation.small import small_plan
from tests.federation.syncs.post import Post

DEADLINE = 10.0
NONSENSE = [
    b"",
    b"[" * 60_000,
    b"FBE1" + b"[" * 60_000,
    b"FBE3" + b"[" * 60_000,
    b"FBE3" + bytes(5_000),
    b"FBE3" + b"\xff" * 100_000,
]


def run(path, plan, scenario, start=0.0, deadline=DEADLINE):
    async def main():
        post = Post(path, plan, deadline, start)
        await post.greet()
        await scenario(post)

    asyncio.run(main())


def test_no_message_stops_a_keeper_and_none_spoils_its_bundle(tmp_path):
    async def scenario(post):
        analyzer = post.parties["analyzer"].public
        bomb = b"FBM1" + (2_000_000).to_bytes(4, "little") + bytes(6 * 2_000_000)
        for plain in (b"", bomb, bytes(1000), b"[" * 60_000):
            for kind in ("release", "greeting", "holds", "mixed", "model"):
                post.queues["analyzer"].append(post.parties["silo-00"].seal(kind, analyzer, 0, plain))
        for name in ("analyzer", "mixer"):
            post.queues[name][:0] = NONSENSE
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        assert post.outcomes() == [[1, 1, 1]]
        assert post.keepers["analyzer"].refused.count == len(NONSENSE) + 20
        assert post.keepers["mixer"].refused.count == len(NONSENSE)

    run(tmp_path, small_plan(), scenario)


def test_models_leave_a_few_at_a_time(tmp_path, monkeypatch):
    """All of a thousand were sealed before the first left, and the broker had seconds for all of them together."""
    monkeypatch.setattr(analyzers, "AT_ONCE", 2)
    under_way, most = 0, 0

    async def scenario(post):
        publish = post.office.publish

        async def slowly(subject, data, message_id):
            nonlocal under_way, most
            under_way, most = under_way + 1, max(most, under_way + 1)
            await asyncio.sleep(0)
            await publish(subject, data, message_id)
            under_way -= 1

        monkeypatch.setattr(post.office, "publish", slowly)
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        assert all(post.models[silo].length == 1 for silo in post.silos)
        assert most == 2

    run(tmp_path, small_plan(silos=5), scenario)


def test_what_reading_a_message_raises_is_a_refusal(tmp_path, monkeypatch):
    """Whatever it is: the next parser bug must not end the process either."""

    def fails(*arguments):
        raise next(errors)

    errors = iter([RecursionError(), MemoryError(), KeyError("x"), ZeroDivisionError()])

    async def scenario(post):
        monkeypatch.setattr(Parcel, "decode", fails)
        for sync in range(4):
            post.release("silo-00", sync, ["mixer"])
        await post.deliver()
        assert post.keepers["mixer"].refused.count == 4

    run(tmp_path, small_plan(), scenario)


def test_a_silo_ahead_of_time_moves_nobody(tmp_path):
    """With a clock a day ahead one silo sent all its releases at once, and every sync was skipped for everybody."""
    plan = small_plan(schedule=clock(3600), rounds=8)

    async def scenario(post):
        for sync in range(8):
            post.release("silo-00", sync)
        await post.deliver()
        await post.pass_time(100 * DEADLINE)
        assert post.outcomes() == []
        assert post.keepers["mixer"].refused.count == post.keepers["analyzer"].refused.count == 8
        for sync in range(8):
            post.now = 3600.0 * (sync + 1) + 1
            for silo in post.silos:
                post.release(silo, sync)
            await post.deliver()
        assert post.outcomes() == [[1, 1, 1]] * 8

    run(tmp_path, plan, scenario)


def test_a_sync_may_come_a_little_early(tmp_path):
    async def scenario(post):
        post.now = 3600.0 - 4
        post.release("silo-00", 0)
        post.release("silo-00", 1)
        await post.deliver()
        assert post.keepers["mixer"].refused.count == 1
        assert post.keepers["mixer"].store.senders(0) == {"silo-00"}

    run(tmp_path, small_plan(schedule=clock(3600), rounds=8), scenario)


def test_how_far_the_sender_of_an_early_release_has_come_is_remembered(tmp_path):
    """Two clocks that were behind refused a release as early, its silo was put back to an older copy, and nobody could
    tell it that it had drawn already: it drew anew."""

    async def scenario(post):
        head = post.parties["silo-00"].signed(1, bytes(range(32)))
        post.release("silo-00", 0, ledger=head)
        await post.deliver()
        for name in ("mixer", "analyzer"):
            assert post.keepers[name].refused.count == 1
            assert post.keepers[name].store.senders(0) == set()
            assert post.keepers[name].seen.of("silo-00").head == head

    run(tmp_path, small_plan(schedule=clock(3600), rounds=8), scenario)


def test_an_early_message_does_not_start_the_deadline_before_others_can_have_sent_theirs(tmp_path):
    """One silo sent its own almost a period early; with a deadline shorter than that, every sync was skipped."""
    plan = small_plan(schedule=clock(5), rounds=8, cohort=2)

    async def scenario(post):
        for sync in range(8):
            post.now = 5.0 * (sync + 1) - 4.9
            post.release("silo-00", sync)
            await post.deliver()
            await post.pass_time(4.9 + 0.5 + 0.1)  # the tick, and one pace later
            for silo in ("silo-01", "silo-02"):
                post.release(silo, sync)
            await post.deliver()
            assert post.outcomes()[sync:] == [[1, 1, 1]]

    run(tmp_path, plan, scenario, deadline=3.0)


def test_a_deadline_does_not_start_because_one_silo_is_further(tmp_path):
    plan = small_plan(rounds=8, schedule=every(1), cohort=2)

    async def scenario(post):
        post.release("silo-00", 5)
        await post.deliver()
        await post.pass_time(100 * DEADLINE)
        assert post.outcomes() == []
        post.release("silo-01", 5)  # as many as make a cohort are further: what nobody came to is over
        await post.deliver()
        await post.pass_time(1)
        assert post.outcomes() == []
        for _ in range(12):
            await post.pass_time(DEADLINE + 1)
        assert post.outcomes()[:6] == [[0, 0, 0]] * 5 + [[1, 1, 0]]

    run(tmp_path, plan, scenario)


@pytest.mark.parametrize("only", ["analyzer", "mixer"])
def test_a_silo_that_sends_to_one_side_only_is_left_out(tmp_path, only):
    """It made the analyzer skip the whole sync."""
    plan = small_plan(rounds=4, schedule=every(1), cohort=2)

    async def scenario(post):
        post.release("silo-00", 0)
        post.release("silo-01", 0)
        post.release("silo-02", 0, [only])
        await post.deliver()
        await post.pass_time(1)
        assert post.outcomes() == []
        await post.pass_time(DEADLINE)
        assert post.outcomes() == [[1, 1, 0]]
        post.release("silo-02", 0)  # too late: there is one total
        await post.deliver()
        assert post.outcomes() == [[1, 1, 0]]
        for silo in post.silos:
            post.release(silo, 1)
        await post.deliver()
        assert post.outcomes() == [[1, 1, 0], [1, 1, 1]]

    run(tmp_path, plan, scenario)


def test_a_mixer_that_counts_in_whom_the_analyzer_does_not_hold_makes_no_model(tmp_path):
    plan = small_plan(rounds=4, schedule=every(1), cohort=2)

    async def scenario(post):
        for silo in ("silo-00", "silo-01"):
            post.release(silo, 0, ["analyzer"])
        await post.deliver()
        everybody, total = np.ones(3, dtype=np.int64), np.zeros((1, plan.protocol.width), dtype=np.uint64)
        sealed = post.parties["mixer"].seal(
            "mixed", post.parties["analyzer"].public, 0, Mixed(everybody, (total,)).encode()
        )
        post.queues["analyzer"].append(sealed)
        await post.deliver()
        assert post.outcomes() == [[0, 0, 0]]

    run(tmp_path, plan, scenario)


def test_an_analyzer_that_tells_silos_different_models_gets_nothing_more(tmp_path):
    plan = small_plan(rounds=4, schedule=every(1))

    async def scenario(post):
        everybody = np.ones(3, dtype=np.int64)
        outcomes = [Outcome(np.full(plan.protocol.width, value), everybody) for value in (1.0, 2.0)]
        one, other = (post.model_head(0, outcome).head for outcome in outcomes)
        mixer = post.keepers["mixer"]
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        forged = other._replace(signature=bytes(64))
        post.release("silo-00", 1, ["mixer"], models=one)
        post.release("silo-01", 1, ["mixer"], models=forged)  # a silo cannot accuse the analyzer without its signature
        await post.deliver()
        assert (mixer.problem, mixer.refused.count) == (None, 1)
        post.release("silo-02", 1, ["mixer"], models=other)
        await post.deliver()
        assert "analyzer has told different parties different things" in mixer.problem
        assert mixer.store.problem() == mixer.problem
        for silo in post.silos:
            post.release(silo, 1, ["analyzer"])
        await post.deliver()
        await post.pass_time(100 * DEADLINE)
        assert post.outcomes() == [[1, 1, 1]]

    run(tmp_path, plan, scenario)


def test_silos_that_send_no_release_say_which_models_they_have(tmp_path):
    """A silo that missed every later sync, or was told another last model, was never compared with the others."""
    plan = small_plan(rounds=4, schedule=every(1))

    async def scenario(post):
        everybody, mixer = np.ones(3, dtype=np.int64), post.keepers["mixer"]
        outcomes = [Outcome(np.full(plan.protocol.width, value), everybody) for value in (1.0, 2.0)]
        one, other = (post.model_head(0, outcome).head for outcome in outcomes)

        async def greets(party, models):
            greeting = Greeting(FORMAT, FORMAT, models=models).encode()
            post.queues["mixer"].append(party.seal("greeting", post.parties["mixer"].public, 0, greeting))
            await post.deliver()

        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        silos = [post.parties[silo] for silo in post.silos]
        await greets(silos[0], one)
        await greets(silos[1], other._replace(signature=bytes(64)))  # not the analyzer's word
        assert (mixer.problem, mixer.refused.count) == (None, 1)
        await greets(silos[1], one._replace(length=5))
        assert (mixer.problem, mixer.refused.count) == (None, 2)
        earlier = Post(tmp_path / "earlier", small_plan(rounds=25)).parties["silo-01"].agreement
        await greets(type(silos[1])(earlier, silos[1].keys, silos[1].public), other)  # of another plan: its own story
        assert (mixer.problem, mixer.refused.count) == (None, 2)
        await greets(silos[1], other)
        assert "analyzer has told different parties different things" in mixer.problem

    run(tmp_path, plan, scenario)


def test_an_analyzer_learns_from_any_greeting_that_it_was_put_back(tmp_path):
    async def scenario(post):
        analyzer, silo = post.keepers["analyzer"], post.parties["silo-02"]
        later = Greeting(FORMAT, FORMAT, models=post.parties["analyzer"].signed(2, bytes(range(32)))).encode()
        post.queues["analyzer"].append(silo.seal("greeting", post.parties["analyzer"].public, 0, later))
        await post.deliver()
        assert "this store is behind" in analyzer.problem

    run(tmp_path, small_plan(), scenario)


def test_an_analyzer_that_draws_the_noise_asks_every_silo(tmp_path):
    """A cohort of silos that had not heard of a model let an old copy draw the noise of its sync a second time."""

    async def main(trust, enough):
        post = Post(tmp_path / trust, small_plan(trust=trust, cohort=2))
        assert post.keepers["analyzer"].asks.answers == enough

    asyncio.run(main("central", 3))
    asyncio.run(main("silo", 2))


def test_heads_are_on_disk_before_what_they_came_with(tmp_path, monkeypatch):
    """Otherwise a silo that is put back, and asks in between, hears that nobody has seen its release."""
    plan = small_plan()

    async def scenario(post):
        analyzer = post.keepers["analyzer"]
        receive, seen = SyncStore.receive, []

        def noted(self, arrived):
            seen.append(analyzer.seen.of("silo-00").syncs)
            receive(self, arrived)

        monkeypatch.setattr(SyncStore, "receive", noted)
        post.release("silo-00", 0, ["analyzer"], ledger=post.parties["silo-00"].signed(1, bytes(range(32))))
        await post.deliver()
        assert seen == [1]

    run(tmp_path, plan, scenario)


def test_a_mixer_that_has_made_its_total_is_not_told_again_what_the_analyzer_holds(tmp_path):
    """An analyzer that was put back told it other silos than before."""
    plan = small_plan(rounds=4, schedule=every(1), cohort=2)

    async def scenario(post):
        file = post.homes["analyzer"].path / f"analyzer-{plan.hash[:12]}.db"
        for silo in post.silos:
            post.release(silo, 0)
        await post.keepers["analyzer"].handle(post.queues["analyzer"])
        post.queues["analyzer"].clear()
        await post.keepers["mixer"].handle(post.queues["mixer"])
        total, post.queues["analyzer"] = post.queues["analyzer"], []
        for name in ("mixer", "analyzer"):  # from now on nobody reads what is for the mixer
            post.keepers.pop(name).store.engine.close()
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()
        post.begin("analyzer")
        for silo in ("silo-00", "silo-01"):
            post.release(silo, 0, ["analyzer"])
        await post.greet()
        assert post.keepers["analyzer"].ready
        post.now += DEADLINE + 1
        post.queues["analyzer"] += total
        await post.deliver()
        kinds = [post.parties["mixer"].open(envelope)[0].kind for envelope in post.to_mixer]
        assert kinds.count("holds") == 1
        assert post.outcomes() == [[0, 0, 0]]

    run(tmp_path, plan, scenario)


def test_messages_of_an_earlier_plan_are_stale(tmp_path):
    async def scenario(post):
        earlier = Post(tmp_path / "earlier", small_plan(rounds=25))
        for silo in post.silos:  # the same parties, who have not changed their keys
            party = earlier.parties[silo]
            old = type(party)(party.agreement, post.parties[silo].keys, post.parties[silo].public)
            plain = Parcel((np.zeros(post.plan.protocol.width, dtype=np.uint64),)).encode()
            post.queues["mixer"].append(old.seal("release", post.parties["mixer"].public, 0, plain))
            post.release(silo, 0)
        analyzer = post.parties["analyzer"]
        old = type(analyzer)(earlier.parties["analyzer"].agreement, analyzer.keys, analyzer.public)
        left_over = Greeting(2, 2, answer=b"a question asked").encode()
        post.queues["mixer"].append(old.seal("greeting", post.parties["mixer"].public, 0, left_over))
        await post.deliver()
        assert post.keepers["mixer"].refused.count == 3
        assert post.outcomes() == [[1, 1, 1]]

    run(tmp_path, small_plan(), scenario)


def test_nothing_is_closed_before_the_others_have_said_what_they_have_seen(tmp_path):
    async def main():
        post = Post(tmp_path, small_plan())
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        await post.pass_time(100 * DEADLINE)
        assert post.outcomes() == []
        await post.greet()
        assert post.outcomes() == [[1, 1, 1]]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["mixer", "analyzer"])
@pytest.mark.parametrize("copy", ["old", "none"])
def test_a_keeper_put_back_to_an_older_state_closes_nothing(tmp_path, name, copy):
    """A restored mixer published a second total of a sync; the difference of the two is a silo's share."""
    plan = small_plan(rounds=8, schedule=every(1), cohort=2)

    async def scenario(post):
        file = post.homes[name].path / f"{name}-{plan.hash[:12]}.db"
        for sync in range(3):
            if sync == 1:
                post.begin(name)  # closes the file
                saved = file.read_bytes()
                await post.greet()
            head = post.keepers["analyzer"].own()
            for silo in post.silos:
                post.release(silo, sync, models=head)
            await post.deliver()
        assert len(post.outcomes()) == 3
        post.keepers[name].store.engine.close()
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()
        if copy == "old":
            file.write_bytes(saved)
        del post.keepers[name]
        post.begin(name)
        await post.greet()
        assert "behind" in post.keepers[name].problem
        for sync in (0, 1, 2):
            for silo in ("silo-00", "silo-01"):
                post.release(silo, sync, [name])
        await post.deliver()
        sent = {silo: len(post.queues[silo]) for silo in post.silos}
        for _ in range(5):
            await post.pass_time(DEADLINE + 1)
        assert {silo: len(post.queues[silo]) for silo in post.silos} == sent
        assert post.keepers[name].store.next_sync() == (1 if copy == "old" else 0)

    run(tmp_path, plan, scenario)


def test_a_store_that_fails_while_a_sync_closes_ends_nobody(tmp_path, monkeypatch):
    """A full disk ended mixer and analyzer."""
    close, failures = SyncStore.close, iter([OSError("No space left on device")] * 2)

    def fails_at_first(*arguments):
        for error in failures:
            raise error
        close(*arguments)

    async def scenario(post):
        monkeypatch.setattr(SyncStore, "close", fails_at_first)
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        assert post.outcomes() == []
        for name in ("mixer", "mixer", "analyzer"):
            await post.keepers[name].handle([])
            await post.deliver()
        assert post.outcomes() == [[1, 1, 1]]

    run(tmp_path, small_plan(), scenario)


def test_what_the_analyzer_holds_is_said_again_until_there_is_a_total(tmp_path):
    """A mixer whose clock was wrong refused it, or was put back to before it came: the term stalled."""

    async def scenario(post):
        for silo in post.silos:
            post.release(silo, 0)
        bundle, post.queues["analyzer"] = post.queues["analyzer"], []
        await post.keepers["analyzer"].handle(bundle)
        assert post.queues["mixer"].pop()  # the last one is what the analyzer holds
        await post.deliver()
        assert post.outcomes() == []
        await post.pass_time(DEADLINE + 1)
        assert post.outcomes() == [[1, 1, 1]]

    run(tmp_path, small_plan(), scenario)


def test_whoever_sends_for_a_sync_that_is_over_is_told_again_what_came_of_it(tmp_path):
    async def scenario(post):
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        before = len(post.queues["silo-00"])
        post.release("silo-00", 0)
        await post.deliver()
        assert len(post.queues["silo-00"]) == before  # it was told a moment ago
        post.now += DEADLINE + 1
        post.release("silo-00", 0)
        await post.deliver()
        assert len(post.queues["silo-00"]) == before + 1
        assert post.outcomes() == [[1, 1, 1]]

    run(tmp_path, small_plan(), scenario)


def test_a_silo_that_speaks_to_the_mixer_alone_is_told_again_too(tmp_path):
    """It lost a model while its disk was full, told the mixer, and nobody told the analyzer."""
    plan = small_plan(rounds=8, schedule=every(1), trust="vector-sum", mechanism="tree", calibration="paper")

    async def scenario(post):
        for silo in post.silos:
            post.release(silo, 0, ["mixer"])
        await post.deliver()
        before = {silo: len(post.queues[silo]) for silo in post.silos}
        post.now += DEADLINE + 1
        post.release("silo-00", 0, ["mixer"])
        await post.deliver()
        assert {silo: len(post.queues[silo]) - before[silo] for silo in post.silos} == dict.fromkeys(post.silos, 1)

    run(tmp_path, plan, scenario)


def test_what_goes_well_is_logged(tmp_path, caplog):
    """Mixer and analyzer said nothing at all, and nobody could tell whether they worked."""
    caplog.set_level("INFO", logger="fedbandit")

    async def scenario(post):
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()

    run(tmp_path, small_plan(), scenario)
    assert caplog.messages.count("sync 0 done: 3 silos") == 2  # the mixer's word and the analyzer's


def test_a_head_is_its_partys_word(tmp_path):
    async def scenario(post):
        silo, other = post.parties["silo-00"], post.parties["silo-01"]
        head = silo.signed(3, bytes(range(32)))
        assert silo.checked("silo-00", head) == head
        assert heads.Head.decode(head.encode()) == head
        for wrong in (head._replace(length=4), head._replace(hash=bytes(32)), other.signed(3, bytes(range(32)))):
            with pytest.raises(ValueError, match="not signed by silo-00"):
                other.checked("silo-00", wrong)
        greeting = Greeting(1, 2, b"q" * 16, b"a" * 16, 7, head, heads.NONE)
        assert Greeting.decode(greeting.encode() + b"what a later version adds") == greeting
        lacks, members = 4, 36  # bytes that say what the sender lacks, and which edition of the members it has
        assert Greeting.decode(greeting.encode()[:-lacks]) == greeting  # of a version that does not say it
        members += lacks
        assert Greeting.decode(greeting.encode()[:-members]) == greeting  # of a version without editions
        older = greeting.encode()[: -members - heads.HEAD_BYTES]
        assert Greeting.decode(older) == greeting  # of a version without models
        for sync in (0, 5, 2**32 - 2):
            assert Greeting.decode(greeting._replace(lacks=sync).encode()).lacks == sync
        assert Greeting.decode(greeting._replace(models=head).encode()).models == head
        assert greeting.reads(2)
        assert not greeting.reads(3)

    run(tmp_path, small_plan(), scenario)


def test_a_message_that_is_given_out_again_while_it_is_handled_is_the_same_message(tmp_path):
    """What is not acknowledged in three seconds comes again, beside or after the first."""
    plan = small_plan(rounds=8, schedule=every(1))

    async def scenario(post):
        for sync in range(3):
            for silo in post.silos:
                post.release(silo, sync)
            while waiting := [name for name in post.keepers if post.queues[name]]:
                for name in waiting:
                    bundle, post.queues[name] = post.queues[name], []
                    handle = post.keepers[name].handle
                    await asyncio.gather(handle(bundle), handle(bundle), handle(bundle[::-1]))
                    await handle(bundle)
        assert post.outcomes() == [[1, 1, 1]] * 3
        for silo in post.silos:
            opened = [post.parties[silo].open(envelope) for envelope in post.queues[silo]]
            models = [(context.sync, payload) for context, payload in opened if context.kind == "model"]
            assert [sync for sync, _ in models] == [0, 1, 2]
        assert all(keeper.problem is None for keeper in post.keepers.values())

    run(tmp_path, plan, scenario)


def test_a_head_after_more_syncs_than_the_plan_has_is_refused(tmp_path):
    """It could not be stored; storing was tried again for ever, and nothing else was done."""

    async def scenario(post):
        models = post.parties["analyzer"].signed(2**40, bytes(32))
        totals = post.parties["mixer"].signed(2**64 - 1, bytes(32))
        everybody = np.ones(3, dtype=np.int64)
        total = np.zeros((1, post.plan.protocol.width), dtype=np.uint64)
        mixed = Mixed(everybody, (total,), totals=totals).encode()
        holds = Holds(everybody, models).encode()
        mixer, analyzer = post.parties["mixer"], post.parties["analyzer"]
        post.queues["analyzer"].append(mixer.seal("mixed", analyzer.public, 0, mixed))
        post.queues["mixer"].append(analyzer.seal("holds", mixer.public, 0, holds))
        post.release("silo-00", 0, models=models)
        async with asyncio.timeout(5):
            await post.deliver()
        assert (post.keepers["mixer"].refused.count, post.keepers["analyzer"].refused.count) == (2, 2)
        for silo in post.silos:
            post.release(silo, 0)
        await post.deliver()
        assert post.outcomes() == [[1, 1, 1]]

    run(tmp_path, small_plan(), scenario)


def test_a_second_total_is_noticed_after_the_next_one_too(tmp_path):
    async def scenario(post):
        for sync in range(2):
            for silo in post.silos:
                post.release(silo, sync)
            await post.deliver()
        other = Mixed(np.ones(3, dtype=np.int64), (np.zeros((1, post.plan.protocol.width), dtype=np.uint64),))
        mixer, analyzer = post.parties["mixer"], post.parties["analyzer"]
        signed = other._replace(totals=mixer.signed(1, bytes(range(32)))).encode()
        post.queues["analyzer"].append(mixer.seal("mixed", analyzer.public, 0, signed))
        await post.deliver()
        assert "mixer has told different parties different things" in str(post.keepers["analyzer"].problem)

    run(tmp_path, small_plan(), scenario)
