"""Parties put back to an old copy, or to none, are brought forward by command, and the federation goes on."""

import asyncio
import contextlib
import json
import shutil

import pytest
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit._words import spans
from fedbandit.cli.main import app
from fedbandit.federation import recovery
from fedbandit.federation.recovery import recover
from fedbandit.federation.silo import book
from fedbandit.federation.silo.forwarding import OldCopy, loss
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.states import ReleaseState, SyncState
from fedbandit.federation.status import status
from fedbandit.federation.store import silo_store
from fedbandit.federation.wire.heads import Greeting
from fedbandit.privacy.ledger import verify
from fedbandit.schedule import every
from tests.federation.harness import federation
from tests.federation.small import small_plan

PLANS = {
    "secure-sum": small_plan(rounds=8, schedule=every(1), cohort=2),
    "silo": small_plan(rounds=8, schedule=every(1), cohort=2, trust="silo"),
    "vector-sum": small_plan(rounds=8, schedule=every(1), trust="vector-sum", mechanism="tree", calibration="paper"),
}


def run(path, plan, scenario, deadline=3.0):
    async def main():
        async with federation(path, plan, deadline) as running:
            await scenario(running)

    asyncio.run(main())


async def forward(running, name, *options):
    """The command, as somebody runs it: its exit code and what it says."""
    home = running.homes[name]
    command = [home.settings.role, "forward", str(home.path), *options]
    result = await asyncio.to_thread(CliRunner().invoke, app, command)
    return result.exit_code, result.output if result.exception is None else f"{result.output}{result.exception}"


def files(running, name):
    path = running.homes[name].store(running.plan.hash)
    folder = running.homes[name].path
    return folder, path.removeprefix(f"{folder}/")


async def put_back(running, name, copy, syncs):
    """The party's store as it was after sync 0, or none, although `syncs` are done."""
    folder, store = files(running, name)
    await running.sync(0)
    await running.stop(name)
    saved = folder / "saved"
    shutil.copy(folder / store, saved)
    await running.start(name)
    for sync in range(1, syncs):
        await running.sync(sync)
    if name in running.silos:
        running.last_entry = running.running[name].silo.store.last_entry()
    await running.stop(name)
    for left in folder.glob(f"{store}*"):
        left.unlink()
    if copy == "old":
        shutil.copy(saved, folder / store)
    await running.start(name)
    command = f"fedbandit {running.homes[name].settings.role} forward"
    await running.until(lambda: command in (running.running[name].problem or ""))
    await running.until(lambda: status(folder)["problem"] == running.running[name].problem)
    await running.stop(name)


def models(running):
    return {name: dict(running.running[name].silo.store.models(1)) for name in running.silos if name in running.running}


@pytest.mark.parametrize("copy", ["old", pytest.param("none", marks=pytest.mark.torture)])
@pytest.mark.parametrize("trust", ["secure-sum", "silo"])
def test_a_silo_is_brought_forward(tmp_path, trust, copy):
    """Its text named a way that no command offered."""
    plan, first = PLANS[trust], 1 if copy == "old" else 0

    async def scenario(running):
        await put_back(running, "silo-00", copy, 3)
        code, said = await forward(running, "silo-00")
        lost = spans(range(first, 3))
        assert code == 1
        assert f"syncs {lost}" in said
        assert "spent (epsilon" in said
        assert "--yes" in said
        code, said = await forward(running, "silo-00", "--yes", "--json")
        found = json.loads(said)
        assert (code, found["syncs"], found["done"]) == (0, list(range(first, 3)), True)
        assert found["epsilon"] < found["epsilon_after"] <= plan.privacy.epsilon
        code, said = await forward(running, "silo-00", "--yes")
        assert (code, "not behind" in said) == (0, True)
        await running.start_and_wait("silo-00")
        for sync in (3, 4):
            await running.sync(sync)
            assert running.outcome(sync).cohort.tolist() == [1, 1, 1]
        store = running.running["silo-00"].silo.store
        states = [release.state for release in store.releases(1)]
        assert states[first:3] == [ReleaseState.GIVEN_UP] * (3 - first)
        chain = book.entries(store.ledger())
        verify(chain, witnessed=[(running.last_entry.number + 1, running.last_entry.hash)])
        spent = book.spending(store.ledger()).terms[0]
        assert (spent.released, spent.redrawn) == (5, ())

    run(tmp_path, plan, scenario)


def test_a_silo_and_the_mixer_are_brought_forward_together(tmp_path):
    """Both were on one machine. The mixer had seen more of the silo than its copy held, and less than the analyzer:
    the silo refused for good."""

    async def saved(running, name):
        folder, store = files(running, name)
        await running.stop(name)
        shutil.copy(folder / store, folder / "saved")
        await running.start(name)

    async def scenario(running):
        await running.sync(0)
        await saved(running, "silo-00")
        await running.sync(1)
        await saved(running, "mixer")
        for sync in (2, 3):
            await running.sync(sync)
        for name in ("silo-00", "mixer"):
            folder, store = files(running, name)
            await running.stop(name)
            for left in folder.glob(f"{store}*"):
                left.unlink()
            shutil.copy(folder / "saved", folder / store)
        code, said = await forward(running, "mixer", "--yes")
        assert (code, "brought forward" in said) == (0, True), said
        await running.start("mixer")
        assert running.running["mixer"].seen.of("silo-00").head.length == 2
        code, said = await forward(running, "silo-00", "--yes")
        assert (code, "syncs 1 to 3." in said) == (0, True), said
        await running.start_and_wait("silo-00")
        await running.sync(4)
        assert running.running["silo-00"].problem is None
        assert running.outcome(4).cohort.tolist() == [1, 1, 1]

    run(tmp_path, PLANS["secure-sum"], scenario, deadline=5.0)


@pytest.mark.parametrize("copy", ["old", pytest.param("none", marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    "trust, name",
    [
        ("secure-sum", "mixer"),
        ("secure-sum", "analyzer"),
        ("silo", "analyzer"),
        ("vector-sum", "mixer"),
        ("vector-sum", "analyzer"),
    ],
)
def test_a_keeper_is_brought_forward(tmp_path, trust, name, copy):
    """It refused for good: nothing could bring it forward."""
    first = 1 if copy == "old" else 0

    async def scenario(running):
        await put_back(running, name, copy, 4)
        before = models(running)
        code, said = await forward(running, name)
        # Where silos do not speak to the analyzer, the mixer has heard of all models but the last, which is made again
        last = 3 if (trust, name) == ("vector-sum", "analyzer") else 4
        lost = spans(range(first, last))
        assert (code, f"syncs {lost}" in said) == (1, True), said
        code, said = await forward(running, name, "--yes")
        assert (code, "brought forward" in said) == (0, True)
        await running.start_and_wait(name)
        for sync in (4, 5):
            await running.sync(sync)
            assert running.outcome(sync).cohort.tolist() == [1, 1, 1]
        store = running.running[name].store
        assert [store.at(sync).state for sync in range(first, last)] == [SyncState.GIVEN_UP] * (last - first)
        for silo, known in models(running).items():
            assert {sync: known[sync] for sync in before[silo]} == before[silo]  # nobody has a second model
            assert running.running[silo].problem is None
        assert len({tuple(known.items()) for known in models(running).values()}) == 1
        for keeper in ("mixer", "analyzer"):
            assert keeper not in running.running or running.running[keeper].problem is None

    run(tmp_path, PLANS[trust], scenario)


@pytest.mark.parametrize("name", ["mixer", "analyzer"])
def test_what_the_lost_store_had_taken_in_holds_nobody_up(tmp_path, name):
    """Releases of the next sync went into the store that is lost: it is closed with those who said it again in time, or
    skipped, and the one after it is as ever."""
    plan, other = PLANS["secure-sum"], {"mixer": "analyzer", "analyzer": "mixer"}[name]

    async def scenario(running):
        folder, store = files(running, name)
        await running.sync(0)
        await running.stop(name)
        shutil.copy(folder / store, folder / "saved")
        await running.start(name)
        await running.sync(1)
        await running.stop(other)
        await running.batch(2)
        await running.until(lambda: len(running.running[name].store.senders(2) & set(running.silos)) == 3)
        await running.stop(name)
        for left in folder.glob(f"{store}*"):
            left.unlink()
        shutil.copy(folder / "saved", folder / store)
        await running.start(other)
        code, said = await forward(running, name, "--yes")
        assert (code, "syncs 1." in said) == (0, True)
        await running.start_and_wait(name)
        await running.wait(3)
        await running.sync(3)
        assert running.outcome(3).cohort.tolist() == [1, 1, 1]

    run(tmp_path, plan, scenario)


def test_the_last_model_is_not_made_again_unseen(tmp_path):
    """The mixer hears of a model with the releases after it. Asked alone, it let the last one be made anew."""

    async def scenario(running):
        folder, store = files(running, "analyzer")
        await running.sync(0)
        await running.stop("analyzer")
        shutil.copy(folder / store, folder / "saved")
        await running.start("analyzer")
        await running.sync(1)
        await running.stop("analyzer")
        for left in folder.glob(f"{store}*"):
            left.unlink()
        shutil.copy(folder / "saved", folder / store)
        await running.start("analyzer")
        await running.until(lambda: running.running["analyzer"].problem is not None)
        assert running.running["analyzer"].store.next_sync() == 1

    run(tmp_path, PLANS["secure-sum"], scenario)


def test_a_party_that_is_not_behind_or_not_answered_is_left_alone(tmp_path):
    plan = PLANS["secure-sum"]

    async def scenario(running):
        await running.sync(0)
        for name in ("silo-00", "mixer", "analyzer"):
            code, said = await forward(running, name)
            assert (code, "in use by another process" in said) == (1, True), said
            await running.stop(name)
            code, said = await forward(running, name, "--yes")
            assert (code, "not behind" in said) == (0, True), said
            await running.start_and_wait(name)
        await running.sync(1)
        assert running.outcome(1).cohort.tolist() == [1, 1, 1]
        await running.stop("mixer")
        await running.stop("analyzer")
        with pytest.raises(TimeoutError, match="must be running"):
            await recover(running.homes["mixer"], agreed=True, patience=1.0)

    run(tmp_path, plan, scenario)


def test_what_cannot_be_brought_forward_says_how_to_go_on(tmp_path):
    """A ledger that lost earlier terms, or that others know otherwise; claims that the silo has not signed."""
    plan = PLANS["secure-sum"]

    async def scenario(running):
        await running.sync(0)
        silo = running.running["silo-00"]
        signer, store = silo.party.keys.signer, silo.silo.store

        def claimed(syncs, length):
            answer = Greeting(2, 2, syncs=syncs, seen=silo.party.signed(length, bytes(32)))
            return loss(OldCopy(store, plan, "silo-00", signer, [answer]))

        with pytest.raises(ArgumentError, match=r"ledger of earlier terms.*federation renew"):
            claimed(2, 7)
        with pytest.raises(ArgumentError, match=r"another ledger.*federation renew"):
            claimed(1, 1)
        assert claimed(2, 2).syncs == (1,)
        assert claimed(99, 3).syncs == (1, 2)  # no further than the silo's own signature
        forged = Greeting(2, 2, syncs=8, seen=running.homes["mixer"].party().signed(8, bytes(32)))
        assert loss(OldCopy(store, plan, "silo-00", signer, [forged])).syncs == ()
        mixer = running.running["mixer"]
        mixer._compare(mixer.party.signed(1, bytes(31) + b"x"))
        assert "federation renew" in mixer.problem

    run(tmp_path, plan, scenario)


def test_a_command_that_is_killed_half_way_is_run_again(tmp_path, monkeypatch):
    """What it had done by then let the silo draw, and it drew what others had seen."""

    async def scenario(running):
        await put_back(running, "silo-00", "old", 4)
        enter, done = silo_store._enter, []

        def killed_at_the_second(sql, term, sync, *others):
            done.append(sync)
            if len(done) == 2:
                raise KeyboardInterrupt
            enter(sql, term, sync, *others)

        monkeypatch.setattr(silo_store, "_enter", killed_at_the_second)
        with contextlib.suppress(KeyboardInterrupt):
            await forward(running, "silo-00", "--yes")
        monkeypatch.undo()
        await running.start("silo-00")
        await running.until(lambda: running.running["silo-00"].problem is not None)
        assert [release.sync for release in running.running["silo-00"].silo.store.releases(1)] == [0]
        await running.stop("silo-00")
        code, said = await forward(running, "silo-00", "--yes")
        assert (code, done, "syncs 1 to 3." in said) == (0, [1, 2], True), said
        await running.start_and_wait("silo-00")
        await running.sync(4)
        assert running.outcome(4).cohort.tolist() == [1, 1, 1]
        store = running.running["silo-00"].silo.store
        assert [release.state for release in store.releases(1)][1:4] == [ReleaseState.GIVEN_UP] * 3
        assert book.spending(store.ledger()).terms[0].released == 5

    run(tmp_path, PLANS["secure-sum"], scenario)


def test_a_plan_without_a_budget_has_no_epsilon_that_could_be_reported(tmp_path):
    """Nothing is in its ledger, and everything was sent in the clear: that is not an epsilon of 0."""
    plan = PLANS["secure-sum"]
    with Silo.open(tmp_path / "private.db", plan) as silo:
        assert recovery._spent(silo, ()) == 0.0
    with Silo.open(tmp_path / "clear.db", plan.changed(privacy=None, trust="none")) as silo:
        assert recovery._spent(silo, ()) is None
