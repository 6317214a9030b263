"""Every protocol by name comes out as it should: with few trials here, with all of them in the torture tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, adaptive, clock, every
from fedbandit._arrays import Integers
from fedbandit.audit.cases import DIM, case, case_of, reduced
from fedbandit.audit.live_game import live_reduced
from fedbandit.audit.report import Report, audit
from fedbandit.presets import NAMES
from fedbandit.privacy.noise import NoiseSource
from fedbandit.problem import Category, Number, Schema
from fedbandit.protocol.base import Message
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.trusts.silo import SiloProtocol
from tests.audit.faults import scaled

TRIALS = {"ldp-eager": 300, "dubey": 100, "sdp-amplified": 400, "ldp": 1_000, "silo": 1_000, "private-adaptive": 1_000}
BROKEN = {"ldp-eager", "dubey", "fed-lin-ucb"}
NAMED = [name for name in NAMES if name != "isolated"]


def _audited(name: str, trials: int | None = None) -> Report:
    return audit(case(name, 1.0, 1e-5), trials or TRIALS.get(name, 2_000), seed=0)


@pytest.mark.parametrize("name", NAMED)
def test_verdicts(name: str) -> None:
    report = _audited(name)
    assert report.verdict == ("broken" if name in BROKEN else "holds")
    assert set(report.as_dict()) == {"name", "claimed", "epsilon_lower", "confidence", "trials", "verdict"}
    claim = report.as_dict()["claimed"]
    assert claim is None if name == "fed-lin-ucb" else claim == {"epsilon": 1.0, "delta": 1e-5}


def test_where_nothing_is_claimed_nothing_holds() -> None:
    report = _audited("silo")
    assert report.verdict == "holds"
    assert replace(report, claim=None).verdict == "nothing claimed"
    assert replace(report, claim=None, budget=(0.0, 1e-5)).verdict == "broken"


def test_eager_is_broken_by_far() -> None:
    assert _audited("ldp-eager").epsilon_lower > 5


def test_a_secure_sum_is_audited_against_everybody() -> None:
    names = [finding.adversary for finding in _audited("secure-sum", 100).findings]
    assert names[:3] == ["the analyzer", "the analyzer with 1 colluding silo", "the mixer"]


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-4), (0.1, 1e-5)])
@pytest.mark.parametrize("name", ["sdp-amplified", "sdp-vector-sum"])
def test_shuffle_protocols_at_other_budgets(name: str, epsilon: float, delta: float) -> None:
    assert audit(case(name, epsilon, delta), 400, seed=0).verdict == "holds"


def test_a_promise_that_needs_the_mixer_holds_behind_it_and_falls_with_too_little_noise() -> None:
    plan = Plan(200, 2, 2, Privacy(0.1, 0.01), "shuffle", "batches", every(1), calibration="exact")
    assert plan.protocol.scales.bias < 0.5 * plan.changed(trust="silo").protocol.scales.bias
    assert [one.name for one in plan.protocol.adversaries()] == ["the analyzer behind the mixer"]
    sound = case_of("plan", plan, (0.1, 0.01), 1_000)
    assert audit(sound, 1_000, seed=0).verdict == "holds"
    assert audit(scaled(sound, 0.05), 1_000, seed=0).verdict == "broken"
    alone = plan.changed(silos=2)
    assert len(alone.protocol.adversaries()) == 2


def test_so_does_one_to_people_who_visit_several_silos() -> None:
    budget = Privacy(0.2, 0.01, silos_per_user=2)
    plan = Plan(200, 2, 2, budget, "shuffle", "batches", every(1), calibration="exact")
    assert [one.name for one in plan.protocol.adversaries()] == ["the analyzer behind the mixer"]
    sound = case_of("plan", plan, (0.2, 0.01), 1_000)
    assert audit(sound, 1_000, seed=0).verdict == "holds"
    assert audit(scaled(sound, 0.05), 1_000, seed=0).verdict == "broken"


def test_what_sends_nothing_cannot_be_audited() -> None:
    with pytest.raises(ValueError, match="isolated"):
        case("isolated", 1.0, 1e-5)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(100, 10_000, 10, Privacy(1.0, 1e-5), colluding=20, cohort=90),
        Plan(100, 10_000, 10, Privacy(1.0, 1e-5, participations=3, silos_per_user=2), trust="silo"),
        Plan(50, 9_000, 5, Privacy(2.0, 1e-4, "add-remove"), trust="central", schedule=every(10)),
        Plan(10, 400, 3, Privacy(1.0, 1e-5), trust="silo", acting="eager", schedule=every(25)),
        Plan(20, 200, 1, Privacy(1.0, 1e-5), trust="silo"),
        Plan(20, 200, 3, Privacy(1.0, 1e-5), trust="silo", centre=0.5, ratio=2.0),
        Plan(20, 200, 3, Privacy(1.0, 1e-5, silos_per_user=3), colluding=2),
        Plan(20, 200, 3, Privacy(1.0, 1e-5), trust="central", cohort=10),
        Plan(4, 32, 2, Privacy(1.0, 1e-5), trust="vector-sum", mechanism="tree", schedule=every(8)),
    ],
)
def test_anybody_s_plan_can_be_audited(plan: Plan) -> None:
    report = audit(reduced(plan), 300, seed=0)
    assert report.verdict == "holds"


@dataclass(frozen=True)
class Forgetful(SiloProtocol):
    """Noise on the first numbers only, as many as three dimensions have."""

    noisy: int = 9

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, (sent,) = super().release(state, batch, noise)
        _, exact = self.encoder.step(state, batch)
        return after, (np.where(np.arange(self.width) < self.noisy, sent, exact),)


@pytest.mark.parametrize("noisy, found", [(65, "holds"), (64, "broken"), (9, "broken")])
def test_noise_that_is_missing_beyond_the_audited_dimension_is_noticed(noisy: int, found: str) -> None:
    plan = Plan(20, 200, 10, Privacy(1.0, 1e-5), trust="silo", schedule=every(20))
    case = reduced(plan)
    assert case.plan.dim == 3
    sound = case.whole[0].protocol
    assert isinstance(sound, SiloProtocol)
    fields = {field.name: getattr(sound, field.name) for field in dataclass_fields(sound)}
    game = replace(case.whole[0], protocol=Forgetful(**fields, noisy=noisy))
    report = audit(replace(case, whole=(game,)), 300, seed=0)
    assert report.verdict == found
    assert all("in the whole plan" in text for text in report.failed)


@pytest.mark.parametrize(
    ("fields", "silos", "rounds", "trials"),
    [
        ({"trust": "secure-sum"}, 3, 1_000, 50_000),
        ({"trust": "secure-sum", "colluding": 7, "cohort": 15}, 5, 1_000, 50_000),
        ({"trust": "secure-sum", "colluding": 3, "cohort": 5}, 20, 1_000, 50_000),
        ({"trust": "secure-sum", "privacy": Privacy(1.0, 1e-5, silos_per_user=3)}, 4, 1_000, 50_000),
        ({"trust": "central"}, 2, 1_000, 50_000),
        ({"trust": "silo"}, 20, 1_000, 50_000),
        ({"trust": "silo", "schedule": every(1)}, 20, 250, 50_000),
        ({"trust": "vector-sum", "mechanism": "tree", "calibration": "paper"}, 2, 4, 20_000),
    ],
)
def test_a_plan_is_made_as_small_as_its_trust_model_says(
    fields: dict[str, Any], silos: int, rounds: int, trials: int
) -> None:
    smaller = reduced(Plan(20, 1_000, 4, **{"privacy": Privacy(1.0, 1e-5), **fields}))
    plan = smaller.plan
    assert (plan.silos, plan.rounds, plan.dim, smaller.trials) == (silos, rounds, 3, trials)


def test_a_plan_without_a_budget_or_a_promise() -> None:
    with pytest.raises(ValueError, match="privacy"):
        reduced(Plan(3, 100, 2, trust="none"))
    leaky = Plan(100, 600, 5, Privacy(1.0, 1e-5), trust="silo", mechanism="tree", schedule=adaptive(9.0))
    report = audit(reduced(leaky), 100, seed=0)
    assert report.claim is None
    assert report.verdict == "broken"


@pytest.mark.torture
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("silo", 0.8, 1.0),
        ("ldp", 0.5, 0.73),
        ("secure-sum", 0.8, 1.0),
        ("central", 0.8, 1.0),
        ("local", 0.8, 1.0),
        ("ldp-eager", 5.0, 100.0),
        ("dubey", 1.0, 100.0),
        ("private-adaptive", 0.0, 1.0),
        ("sdp-amplified", 0.0, 1.0),
        ("sdp-vector-sum", 0.0, 1.0),
    ],
)
def test_at_full_size(name: str, least: float, most: float) -> None:
    assert least <= audit(case(name, 1.0, 1e-5), seed=3, workers=2).epsilon_lower <= most


@pytest.mark.parametrize("trust", ["silo", "secure-sum"])
def test_a_plan_with_a_schema_is_audited_in_few_dimensions(trust: str) -> None:
    """Its dimension is the schema's: reduced, it was refused."""
    schema = Schema({"age": Number(0, 100), "sex": Category(["f", "m"])}, actions=("low", "medium", "high"))
    plan = Plan(4, 8, schema=schema, privacy=Privacy(1.0, 1e-3), trust=trust, schedule=clock(60.0))
    assert plan.dim > DIM
    for small in (reduced(plan), live_reduced(plan)):
        assert small.plan.dim == DIM
        assert small.own == plan
