"""A federation in one process: the parties of a live one, ticked by hand."""

import asyncio
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions
from fedbandit.cli.main import app
from fedbandit.federation.silo import book
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.parcels import Outcome
from tests.federation.small import small_plan

DAY = 86_400.0
CLOCK = {"schedule": fb.clock(DAY), "visits": "private", "rounds": 4}
PLANS = {
    "secure-sum": small_plan(**CLOCK, cohort=2),
    "silo": small_plan(**CLOCK, trust="silo"),
    "central": small_plan(**CLOCK, trust="central"),
    "none": small_plan(**CLOCK, trust="none", privacy=None),
    "vector-sum": small_plan(trust="vector-sum", mechanism="tree", calibration="paper", rounds=20),
    "vector-sum, exact": small_plan(trust="vector-sum", mechanism="tree", rounds=20),
}
ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])


def visit(silo, times, user=None):
    """So many people, who like the second action; what they add to the sums."""
    total = np.zeros(silo.plan.protocol.width, dtype=np.int64)
    for number in range(times):
        decision = silo.decide(ACTIONS, user=user)
        reward = [0.1, 0.9][decision.action]
        assert silo.reward(decision.id, reward).counted == (user is None or not number)
        total += contributions(ACTIONS[decision.action], reward, silo.plan.bits)
    return total


@pytest.mark.parametrize("trust", PLANS)
def test_all_silos_have_the_next_model_after_each_tick(trust):
    plan = PLANS[trust]
    with fb.Federation.local(plan) as federation:
        assert isinstance(federation.analyzer, Analyzer)
        assert isinstance(federation.mixer, Mixer) == plan.protocol.has_mixer
        exact = np.zeros(plan.protocol.width)
        for sync in range(len(plan.times)):
            for silo in federation.silos.values():
                exact += visit(silo, 5) * 2.0**-plan.bits
            assert federation.tick() == [sync]
            (model,) = {json.dumps(silo.model()) for silo in federation.silos.values()}
            assert json.loads(model)[0] == sync + 1
            outcome = Outcome.decode(federation.analyzer.store.at(sync).value or b"", plan)
            assert outcome.cohort.all()
            if plan.privacy is None:
                np.testing.assert_allclose(outcome.prefix, exact)
        assert federation.tick() == []
        silo = federation.silos["silo-00"]
        assert silo.ended
        assert silo.store.batch(1, 0) == []
        assert len(book.entries(silo.store.ledger())) == (len(plan.times) if plan.privacy else 0)


def test_it_learns():
    plan = PLANS["none"].changed(rounds=3)
    with fb.Federation.local(plan, ["a", "b", "c"]) as federation:
        for _ in range(3):
            for name in ("a", "b"):
                visit(federation.silos[name], 20)
            federation.tick()
        assert federation.silos["c"].decide(ACTIONS).action == 1  # nobody ever came to c


def test_the_clock_stands_still_until_it_is_told(tmp_path):
    plan = PLANS["silo"]
    with fb.Federation.local(plan, timing=Timing(reward_window=3 * DAY)) as federation:
        silo = federation.silos["silo-00"]
        late = silo.decide(ACTIONS)
        federation.pass_time(DAY / 2)
        assert silo.tick() == []
        began = silo.now
        assert federation.tick() == [0]
        assert math.isclose(silo.now - began, DAY / 2, abs_tol=1.0)
        assert federation.tick(2) == [1, 2]
        federation.pass_time(DAY / 2)
        with pytest.raises(ValueError, match="expired"):
            silo.reward(late.id, 0.5)


def test_a_person_counts_as_often_as_the_plan_says():
    with fb.Federation.local(PLANS["secure-sum"]) as federation:
        visit(federation.silos["silo-00"], 3, user="patient 4711")
        federation.tick()
        assert federation.silos["silo-00"].status()["over_cap"] == 2


def test_inside_a_running_loop_as_in_a_notebook():
    async def cell():
        with fb.Federation.local(PLANS["silo"]) as federation:
            return federation.tick(2)

    assert asyncio.run(cell()) == [0, 1]


def test_its_directories_are_those_of_a_live_federation(tmp_path):
    with fb.Federation.local(PLANS["secure-sum"], ["a", "b", "c"], folder=tmp_path / "trial") as federation:
        federation.tick()
    for name in ("a", "mixer", "analyzer"):
        result = CliRunner().invoke(app, ["status", str(tmp_path / "trial" / name), "--json"])
        assert result.exit_code == 0
        known = json.loads(result.output)
        assert known.get("released", known.get("closed")) == 1
    result = CliRunner().invoke(app, ["ledger", str(tmp_path / "trial" / "a" / "silo.db"), "--json"])
    assert (result.exit_code, json.loads(result.output)["entries"]) == (0, 1)


def test_what_is_left_out_is_closed(tmp_path):
    federation = fb.Federation.local(PLANS["silo"])
    folder = federation.folder
    assert folder.exists()
    federation.close()
    assert not folder.exists()


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="names of the plan's 3 silos"):
        fb.Federation.local(PLANS["silo"], ["a"])
    with pytest.raises(ArgumentError, match="must not have a start"):
        fb.Federation.local(PLANS["silo"], timing=Timing(start=1.0))
    with pytest.raises(ArgumentError, match="trust"):
        fb.Federation.local(PLANS["silo"].changed(trust="local"))
    fb.Federation.local(PLANS["silo"], folder=tmp_path).close()
    with pytest.raises(ArgumentError, match="must be new"):
        fb.Federation.local(PLANS["silo"], folder=tmp_path)
