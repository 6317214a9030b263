"""Whole syncs over a real broker, for every trust model; silos that are away; parties that are killed."""

import asyncio
from typing import Any

import numpy as np
import pytest

from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup.party import PlanMismatch
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.syncs.deadlines import closing
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.wire import broker, heads, messages
from fedbandit.federation.wire.parcels import Mixed, Outcome, Parcel
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.schedule import every
from tests.federation.harness import federation
from tests.federation.small import small_plan

PARTIES = ("analyzer", "mixer", "silo-00", "silo-01", "silo-02")
PAPER: dict[str, Any] = {"mechanism": "tree", "calibration": "paper"}
SHUFFLE = Plan(12, 4, 2, Privacy(0.01, 0.1), trust="shuffle", schedule=every(2), visits="public", **PAPER)
PLANS = {
    "none": small_plan(trust="none", privacy=None),
    "central": small_plan(trust="central"),
    "silo": small_plan(trust="silo"),
    "silo, decoded there": small_plan(trust="silo", mechanism="tree", decode_at="silo"),
    "shuffle": SHUFFLE,
    "vector-sum": small_plan(trust="vector-sum", **PAPER),
    "secure-sum": small_plan(trust="secure-sum"),
    "secure-sum, blt": small_plan(trust="secure-sum", mechanism="blt"),
}


def run(path, plan, scenario, deadline=60.0, absent=()):
    async def main():
        async with federation(path, plan, deadline, absent) as running:
            await scenario(running)

    asyncio.run(main())


def releases(running, sync):
    """What every silo drew at a sync, stacked as the protocol has it."""
    drawn = [running.running[name].silo.store.release(1, sync).drawn for name in running.silos]
    return tuple(np.stack(arrays) for arrays in zip(*map(messages.decode, drawn), strict=True))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_every_trust_model_computes_what_the_library_does(tmp_path, plan):
    async def scenario(running):
        state = plan.protocol.init_analyzer()
        for sync in range(len(plan.times)):
            await running.sync(sync)
            outcome = running.outcome(sync)
            assert outcome.cohort.all()
            if plan.trust == "central":  # the noise is drawn at the analyzer: check its size
                noise = outcome.prefix - running.exact_prefix(sync)
                assert (np.abs(noise) < 8 * plan.noise_std).all()
                assert noise.all()
                continue
            state, prefix = plan.protocol.decode(state, plan.protocol.passed_on(releases(running, sync), ExactNoise()))
            assert np.allclose(outcome.prefix, prefix, rtol=0, atol=1e-9 * max(1.0, np.abs(prefix).max()))
            if plan.trust == "none":
                assert np.allclose(outcome.prefix, running.exact_prefix(sync), rtol=0, atol=1e-9)
        stored = {running.running[name].silo.store.models(1)[-1] for name in running.silos}
        assert len(stored) == 1

    run(tmp_path, plan, scenario)


@pytest.mark.parametrize("mechanism", mechanisms.names())
def test_a_silo_that_was_away_catches_up_exactly(tmp_path, mechanism):
    """Trust `silo`: from its return on the prefix sums are those of a run in which it was never away."""
    plan = small_plan(trust="silo", mechanism=mechanism, rounds=9, schedule=every(1), cohort=2)

    async def scenario(running):
        await running.sync(0)
        await running.cut_off("silo-01")
        for sync in range(1, 6):
            await running.batch(sync, absent=["silo-01"])
            await running.wait(sync + 1, ["silo-00", "silo-02"])
            assert running.outcome(sync).cohort.tolist() == [1, 0, 1]
        await running.start("silo-01")
        await running.wait(6)
        for sync in (6, 7, 8):
            await running.sync(sync)
        state = plan.protocol.init_analyzer()
        for sync in range(9):
            state, never_away = plan.protocol.decode(state, releases(running, sync))
            if sync not in range(1, 6):
                assert running.outcome(sync).cohort.all()
                grid = 2.0 ** -(plan.protocol.release_bits - 6)
                assert np.allclose(running.outcome(sync).prefix, never_away, rtol=0, atol=grid)
        silo = running.running["silo-01"].silo
        assert silo.status()["missed"] == list(range(1, 6))
        assert silo.status()["weight"] == 1.0
        assert silo.status()["epsilon_spent"] <= plan.privacy.epsilon * (1 + 1e-6)

    run(tmp_path, plan, scenario, deadline=1.5)


def test_secure_sum_leaves_a_missing_silo_out_with_the_weights_predicted(tmp_path):
    plan = small_plan(trust="secure-sum", rounds=8, schedule=every(1), cohort=2)

    async def scenario(running):
        for sync in range(2):
            await running.sync(sync)
        await running.cut_off("silo-01")
        for sync in (2, 3, 4):
            await running.batch(sync, absent=["silo-01"])
            await running.wait(sync + 1, ["silo-00", "silo-02"])
        await running.start("silo-01")
        await running.wait(5)
        for sync in (5, 6, 7):
            await running.sync(sync)
        silo = running.running["silo-01"].silo
        states = [release.state for release in silo.store.releases(1)]
        assert [sync for sync, state in enumerate(states) if state is ReleaseState.MISSED] == [2, 3, 4]
        # decode the releases without their noise: what is left is every batch times its weight
        weights = plan.protocol.kept_weights([2, 3, 4], 7)
        expected = running.sums[[0, 2]].sum(axis=(0, 1)) + np.tensordot(weights, running.sums[1], axes=1)
        noise = running.outcome(7).prefix - expected * 2.0**-plan.bits
        decoder, noises = plan.encoder.decoder_row(7), []
        for number, name in enumerate(running.silos):
            encoder = plan.encoder.init((plan.protocol.width,))
            for sync in range(8):
                encoder, encoded = plan.encoder.step(encoder, running.sums[number, sync])
                mask, rest = messages.decode(running.running[name].silo.store.release(1, sync).drawn)
                drawn = (mask + rest).view(np.int64) - encoded
                noises.append(0 if number == 1 and sync in (2, 3, 4) else decoder[sync] * drawn)
        assert np.allclose(noise, sum(noises) * 2.0**-plan.protocol.release_bits, rtol=0, atol=1e-6)
        status = silo.status()
        assert status["weight"] == pytest.approx(weights.mean())
        assert 0 < status["weight"] < 1
        assert status["epsilon_spent"] <= plan.privacy.epsilon * (1 + 1e-6)

    run(tmp_path, plan, scenario, deadline=4.0)


@pytest.mark.parametrize("trust", ["secure-sum", "silo"])
def test_a_sync_with_too_few_silos_is_skipped_and_the_model_stays(tmp_path, trust):
    plan = small_plan(trust=trust, rounds=4, schedule=every(1))  # all three must be there

    async def scenario(running):
        await running.sync(0)
        await running.cut_off("silo-01")
        before = running.outcome(0)
        await running.batch(1, absent=["silo-01"])
        await running.wait(2, ["silo-00", "silo-02"])
        assert running.outcome(1).skipped
        assert (running.outcome(1).prefix == before.prefix).all()
        await running.start("silo-01")
        await running.wait(2)
        for sync in (2, 3):
            await running.sync(sync)
            assert running.outcome(sync).cohort.all()
        if trust == "silo":
            state = plan.protocol.init_analyzer()
            for sync in range(4):
                state, whole = plan.protocol.decode(state, releases(running, sync))
            assert np.allclose(running.outcome(3).prefix, whole, rtol=0, atol=1e-6)

    run(tmp_path, plan, scenario, deadline=1.5)


@pytest.mark.parametrize("victim", ["analyzer", "mixer", "silo-00"])
def test_a_party_that_ends_and_comes_back_changes_nothing(tmp_path, victim):
    plan = small_plan()

    async def scenario(running):
        await running.sync(0)
        before = running.outcome(0)
        await running.stop(victim)
        await running.start(victim)
        await running.sync(1)
        await running.stop(victim)
        if victim != "silo-00":
            await running.batch(2)
            await asyncio.sleep(0.3)
            await running.start(victim)
            await running.wait(3)
        else:
            await running.start(victim)
            await running.sync(2)
        await running.sync(3)
        assert (running.outcome(0).prefix == before.prefix).all()
        state = plan.protocol.init_analyzer()
        for sync in range(4):
            held = plan.protocol.passed_on(releases(running, sync), ExactNoise())
            state, prefix = plan.protocol.decode(state, held)
            assert np.allclose(running.outcome(sync).prefix, prefix, rtol=0, atol=1e-9)

    run(tmp_path, plan, scenario)


def test_the_broker_can_be_killed(tmp_path):
    async def scenario(running):
        await running.sync(0)
        running.server.kill()
        await running.batch(1)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(running.server.start)
        await running.wait(2)
        await running.sync(2)

    run(tmp_path, small_plan(), scenario)


def test_the_same_bytes_are_sent_again(tmp_path):
    async def scenario(running):
        await running.sync(0)
        store = running.running["silo-00"].silo.store
        before = store.release(1, 0)
        await running.running["silo-00"]._publish(running.links["silo-00"], 0)
        await running.running["mixer"].publish(running.running["mixer"].store.at(0))
        await running.running["analyzer"].publish(running.running["analyzer"].store.at(0))
        await running.sync(1)
        assert store.release(1, 0) == before

    run(tmp_path, small_plan(), scenario)


@pytest.mark.parametrize("name", ["silo-00", "mixer"])
def test_a_party_under_another_plan_refuses_to_work(tmp_path, name):
    async def scenario(running):
        file = running.homes[name].path / "federation.json"
        file.write_text(file.read_text().replace('"rounds": 20', '"rounds": 25'))
        running.plan = small_plan(rounds=25)
        await running.start(name)
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(running.tasks[name], 20)
        assert caught.group_contains(PlanMismatch, match="analyzer works under plan")

    run(tmp_path, small_plan(), scenario, absent=[name])


def test_an_edited_plan_is_refused_after_the_start(tmp_path):
    async def scenario(running):
        await running.sync(0)
        await running.stop("silo-00")
        await running.stop("mixer")
        running.plan = small_plan(rounds=25)
        for name in ("silo-00", "mixer"):
            file = running.homes[name].path / "federation.json"
            file.write_text(file.read_text().replace('"rounds": 20', '"rounds": 25'))
        with pytest.raises(ValueError, match="plan must hash to"):
            await running.start("silo-00")

    run(tmp_path, small_plan(), scenario)


def test_messages_of_outsiders_and_wrong_shapes_are_refused(tmp_path):
    plan = small_plan()

    async def scenario(running):
        mixer, silo = running.running["mixer"], running.running["silo-00"]
        receiver = silo.party.agreement.holder("mixer")
        wrong_shape = Parcel((np.zeros(3, dtype=np.uint64),)).encode()
        wrong_type = Parcel((np.zeros(plan.protocol.width),)).encode()
        zeros = np.zeros(plan.protocol.width, dtype=np.uint64)
        too_many, carrying = Parcel((zeros, zeros)).encode(), Parcel((zeros,), (b"ciphertext",)).encode()
        for plain in (wrong_shape, wrong_type, too_many, carrying, b"nonsense"):
            await mixer.handle([silo.party.seal("release", receiver, 0, plain)])
        good = Parcel((zeros,)).encode()
        await mixer.handle([silo.party.seal("model", receiver, 0, good)])
        await mixer.handle([silo.party.seal("release", receiver, 99, good)])
        await mixer.handle([b"", b"FBE1garbage"])
        assert mixer.refused.count == 9
        assert mixer.store.inbox(0) == {}
        await running.sync(0)

    run(tmp_path, plan, scenario)


def test_a_mixer_that_breaks_the_rules_is_refused(tmp_path):
    plan = small_plan(rounds=10)
    width = plan.protocol.width

    async def scenario(running):
        await running.stop("mixer")
        mixer = running.homes["mixer"].party()
        analyzer = running.running["analyzer"]
        receiver = mixer.agreement.holder("analyzer")
        everybody, total = np.ones(3, dtype=np.int64), np.zeros((1, width), dtype=np.uint64)
        wrong = [
            b"", messages.pack([]), messages.pack([b"x", b"y"]),
            Mixed(np.ones(4, dtype=np.int64), (total,)).encode(),
            Mixed(np.ones(65, dtype=np.int64), (total,)).encode(),
            messages.pack([heads.NONE.encode(), messages.encode([everybody[:1]]), messages.encode([total])]),
            Mixed(everybody, (total[:, :-1],)).encode(),
            Mixed(everybody, (total.astype(np.float64),)).encode(),
            Mixed(everybody, ()).encode(),
            Mixed(everybody, (total,), (b"ciphertext",)).encode(),
        ]  # fmt: skip
        await analyzer.handle([mixer.seal("mixed", receiver, 0, plain) for plain in wrong])
        assert analyzer.refused.count == len(wrong)
        alone = np.array([1, 0, 0], dtype=np.int64)  # a cohort of one would show one silo's sums
        await running.batch(0)
        await asyncio.sleep(0.5)
        await analyzer.handle([mixer.seal("mixed", receiver, 0, Mixed(alone, (total,)).encode())])
        await running.wait(1)
        assert running.outcome(0).skipped

    run(tmp_path, plan, scenario)


def test_a_second_model_of_a_sync_is_refused(tmp_path):
    plan = small_plan(rounds=10)

    async def scenario(running):
        await running.sync(0)
        analyzer, silo = running.running["analyzer"].party, running.running["silo-00"]
        before = silo.silo.model()
        other = Outcome(running.outcome(0).prefix + 1, running.outcome(0).cohort)
        bad = Outcome(np.full(plan.protocol.width, np.nan), running.outcome(0).cohort)
        for sync, outcome in ((0, other), (1, bad), (99, other)):
            await silo.handle([analyzer.seal("model", silo.party.public, sync, outcome.encode())])
        assert silo.silo.model() == before
        await running.sync(1)

    run(tmp_path, plan, scenario)


def test_closing_waits_for_all_or_the_deadline():
    silos = ("a", "b", "c")
    assert closing(silos, silos, 2, False) == "all silos are in"
    assert closing(("a", "b"), silos, 2, False) is None
    assert closing(("a", "b"), silos, 2, True) == "deadline, cohort large enough"
    assert closing(("a",), silos, 2, True) == "deadline, cohort too small"
    assert closing((), silos, 2, True) == "deadline, cohort too small"


def test_what_is_handled_for_longer_than_the_broker_waits_counts_once(tmp_path, monkeypatch):
    """The broker gives it out again meanwhile. To a silo, the second insert of a model ended the process."""
    handled: list[tuple[str, int]] = []

    def slowly(take):
        async def work(self, envelopes):
            handled.append((self.party.name, len(envelopes)))
            if sum(name == self.party.name for name, _ in handled) < 6:
                await asyncio.sleep(0.4)
            await take(self, envelopes)

        return work

    async def scenario(running):
        for kind, method in ((SyncKeeper, "take"), (Agent, "handle")):
            monkeypatch.setattr(kind, method, slowly(getattr(kind, method)))
        for name in running.homes:
            await running.start(name)
        for sync in range(3):
            await running.sync(sync)
            assert running.outcome(sync).cohort.tolist() == [1, 1, 1]
        for name in running.silos:
            assert running.running[name].problem is None
            store = running.running[name].silo.store
            assert [release.state for release in store.releases(1)] == [ReleaseState.INCLUDED] * 3
        envelopes = sum(count for name, count in handled if name == "silo-00")
        assert envelopes > 3 + 2 * 2  # models and greetings: some came more than once

    monkeypatch.setattr(broker, "ACK_WAIT", 0.2)
    run(tmp_path, small_plan(rounds=3, schedule=every(1)), scenario, absent=PARTIES)
