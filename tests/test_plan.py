"""The plan: what follows from it, what it refuses, and what it looks like as data."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import tomllib
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import Radii
from fedbandit.bandit.policies import Policy
from fedbandit.bandit.prior import Prior
from fedbandit.bandit.statistics import Scales, contributions, unpack, width
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import GENESIS, Binomial, Clear, Entrusted, Entry, Gaussian, append, verify
from fedbandit.privacy.spending import Spent, spent
from fedbandit.problem import Number, Schema
from fedbandit.protocol import mechanisms
from fedbandit.protocol import trust as trust_models
from fedbandit.protocol.guarantee import OWN_CHOICE, Acting, Calibration
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import adaptive, clock, every, growing

PRIVACY = Privacy(1.0, 1e-5)
GOOD = Plan(10, 100, 3, PRIVACY, "silo", "toeplitz", every(10))
MANY = Plan(200, 50, 3, Privacy(1.0, 0.1))
SHUFFLED = Plan(200, 50, 3, Privacy(2e-3, 1e-4))  # amplification reaches no further


def test_the_ten_lines() -> None:
    plan = fb.Plan(silos=100, rounds=10_000, dim=10, privacy=fb.Privacy(epsilon=1.0, delta=0.1), trust="secure-sum")
    assert (plan.mechanism, plan.acting, plan.calibration) == ("toeplitz", "lazy", "exact")
    assert plan.privacy is not None
    assert plan.privacy.adjacency == "replace-one"
    assert plan.schedule == growing(1.1)
    assert "(1, 0.1)-differentially private" in str(plan.guarantee)
    assert fb.paper.ldp(plan).guarantee.promised
    assert not fb.paper.fed_lin_ucb(plan).guarantee.promised


def test_what_follows_from_a_plan() -> None:
    assert GOOD.times == tuple(range(10, 101, 10))
    assert GOOD.syncs == GOOD.encoder.size == 10
    assert GOOD.bytes_per_silo == 10 * 9 * 8
    assert GOOD.changed(trust="secure-sum").bytes_per_silo == 2 * 10 * 9 * 8  # two shares
    assert GOOD.changed(schedule=every(30)).times == (30, 60, 90, 100)
    assert GOOD.changed(schedule=clock(1.0)).syncs == 100
    data_decide = GOOD.changed(schedule=adaptive(2.0))
    assert data_decide.syncs is None
    assert data_decide.bytes_per_silo is None
    assert data_decide.encoder.size == 100  # it may synchronise after every round
    assert GOOD.radius(50) > GOOD.radius(10)
    assert GOOD.regulariser > 1
    noiseless = GOOD.changed(trust="none", privacy=None)
    assert (noiseless.noise_std, noiseless.regulariser) == (0.0, 1.0)
    assert noiseless.radius(50) < GOOD.radius(50)


def test_radii_count_the_users_of_all_silos_or_of_one_that_is_alone() -> None:
    pooled = Plan(10, 100, 3, trust="none", schedule=every(10))
    alone = plan_for("isolated", pooled)
    d, t, alpha = 3, 40, 0.01
    expected = math.sqrt(2 * math.log(2 / alpha) + d * math.log(1 + 10 * t / d)) + 1
    assert pooled.radius(t) == pytest.approx(expected)
    assert alone.radius(t) == pytest.approx(math.sqrt(2 * math.log(2 / alpha) + d * math.log(1 + t / d)) + 1)


BAD: list[tuple[dict[str, object], str]] = [
    ({"silos": 0}, "silos must be a whole number >= 1, got 0"),
    ({"silos": 2.5}, "silos must be a whole number >= 1, got 2.5"),
    ({"silos": True}, "silos must be a whole number >= 1, got True"),
    ({"rounds": -1}, "rounds must be a whole number >= 1, got -1"),
    ({"rounds": math.nan}, "rounds must be a whole number >= 1, got nan"),
    ({"dim": 0}, "dim must be a whole number >= 1, got 0"),
    ({"dim": "3"}, "dim must be a whole number >= 1, got '3'"),
    (
        {"trust": "me"},
        "trust must be one of central, local, none, public-contexts, secure-sum, shuffle, shuffled-users, silo, "
        "vector-sum; got 'me'",
    ),
    ({"acting": "fast"}, "acting must be one of lazy, eager; got 'fast'"),
    ({"calibration": "loose"}, "calibration must be one of exact, paper, published, literature; got 'loose'"),
    (
        {"confidence": "high"},
        "confidence must be one of theory, proof, practical, published, shariff-sheffet, zheng, he, azize-basu; "
        "got 'high'",
    ),
    ({"decode_at": "mixer"}, "decode_at must be one of analyzer, silo; got 'mixer'"),
    ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1, got 0.0"),
    ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1, got 1.0"),
    ({"exploration": 0.0}, "exploration must be a finite number > 0, got 0.0"),
    ({"reward_noise": math.inf}, "reward_noise must be a finite number > 0, got inf"),
    ({"ratio": -1.0}, "ratio must be a finite number > 0, got -1.0"),
    ({"centre": 1.5}, "centre must lie in [0, 1], got 1.5"),
    ({"centre": math.nan}, "centre must lie in [0, 1], got nan"),
    ({"bits": 0}, "bits must be a whole number >= 1, got 0"),
    ({"cohort": 11}, "cohort must lie between 1 and the 10 silos, got 11"),
    ({"schedule": every(101)}, "batch must be at most the horizon of 100 rounds, got 101"),
    ({"schedule": "every"}, "schedule must be made by every, growing, clock or adaptive, got 'every'"),
    ({"privacy": 1.0}, "privacy must be a Privacy or None, got 1.0"),
    ({"privacy": None}, "privacy must be given for every trust but 'none', got None"),
    (
        {"privacy": Privacy(1.0, 0.1, silos_per_user=11)},
        "silos_per_user must be at most the 10 silos, got 11",
    ),
]


@pytest.mark.parametrize(
    ("fields", "message"), BAD, ids=[next(iter(fields)) + str(i) for i, (fields, _) in enumerate(BAD)]
)
def test_bad_input_is_one_line_that_names_the_argument(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        GOOD.changed(**fields)
    assert str(error.value) == message
    assert message.startswith(f"{error.value.field} ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mechanism": "forest"}, "mechanism must be one of"),
        ({"bits": 60}, r"bits must be at most \d+ here, got 60: the sums of .* must fit into 64-bit integers"),
        ({"bits": 63}, "bits must be at most 62, got 63: sums are 64-bit integers"),
        ({"bits": 10**6}, "bits must be at most 62, got 1000000"),
        ({"ratio": 1e-320}, "ratio must be nearer to 1, got 9.99989e-321: the sums of"),
        ({"rounds": 10**400}, "rounds must be at most 9,223,372,036,854,775,807, got more"),
        ({"mechanism": {}}, "mechanism must be one of"),
        ({"ratio": 1e300}, r"ratio must be nearer to 1, got 1e\+300: the sums of"),
        ({"trust": "silo", "colluding": 1}, "colluding must be left out for trust 'silo', got 1"),
        ({"trust": "secure-sum", "colluding": 500}, r"colluding must be at most the \d+ silos, got 500"),
        ({"exploration": 0.5}, "exploration must be 1 unless confidence is 'published', got 0.5"),
        ({"reward_noise": 0.5}, "reward_noise must be 1 unless confidence is 'published', got 0.5"),
        ({"schedule": clock(1.0), "bits": 40}, r"bits must be at most \d+ here, got 40: the sums of 1,000,000,000"),
        (
            {"ratio": 2.0, "calibration": "paper"},
            "ratio must be 1 unless calibration is 'exact' or 'literature', got 2.0",
        ),
        ({"trust": "central", "decode_at": "silo"}, "decode_at must be 'analyzer' for trust 'central', got 'silo'"),
        ({"trust": "local"}, "trust 'local' must have mechanism 'batches' and calibration 'exact'"),
        ({"trust": "local", "mechanism": "batches", "acting": "eager"}, "acting must be 'lazy' for trust 'local'"),
        (
            {"trust": "local", "mechanism": "batches", "schedule": adaptive(2.0)},
            "schedule must be public for trust 'local'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        GOOD.changed(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.1), "epsilon must be a finite number > 0, got 0.0"),
        ((-1.0, 0.1), "epsilon must be a finite number > 0, got -1.0"),
        ((math.nan, 0.1), "epsilon must be a finite number > 0, got nan"),
        ((math.inf, 0.1), "epsilon must be a finite number > 0, got inf"),
        (("1", 0.1), "epsilon must be a finite number > 0, got '1'"),
        ((1.0, 0.0), "delta must lie strictly between 0 and 1, got 0.0"),
        ((1.0, 1.0), "delta must lie strictly between 0 and 1, got 1.0"),
        ((1.0, math.nan), "delta must lie strictly between 0 and 1, got nan"),
        ((1.0, 0.1, "neighbours"), "adjacency must be one of replace-one, add-remove; got 'neighbours'"),
        ((1.0, 0.1, "replace-one", 0), "participations must be a whole number >= 1, got 0"),
        ((1.0, 0.1, "replace-one", 1, 1.5), "silos_per_user must be a whole number >= 1, got 1.5"),
    ],
)
def test_a_budget_that_is_none_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Privacy(*arguments)  # type: ignore[arg-type]
    assert str(error.value) == message


@pytest.mark.parametrize("name", NAMES)
def test_as_data_and_back(name: str) -> None:
    plan = plan_for(name, SHUFFLED if name == "sdp-amplified" else MANY)
    data = json.loads(json.dumps(plan.as_dict()))
    again = Plan.from_dict(data)
    assert again == plan
    assert again.hash == plan.hash
    assert again.protocol.scales == plan.protocol.scales


def test_a_plan_that_has_derived_its_numbers_can_be_pickled() -> None:
    made = Plan(3, 100, 4, Privacy(1.0, 1e-5))
    radius = made.radius(10)
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.radius(10)) == (made, radius)


def test_numbers_that_came_out_of_numpy_are_numbers() -> None:
    plan = Plan(
        *(np.int64(10), np.int32(100), np.int64(3)),  # type: ignore[arg-type]
        Privacy(np.float64(1.0), 1e-5),
        "silo",
        schedule=every(np.int64(10)),  # type: ignore[arg-type]
    )
    assert plan.hash == GOOD.hash
    assert json.loads(json.dumps(plan.as_dict())) == GOOD.as_dict()


OTHER_VALUES: dict[str, object] = {
    "prior": Prior((0.0,) * width(GOOD.dim), Scales.flat(1.0), 1),
    "silos": 11,
    "forget": 0.9,
    "endless": True,
    "personal": (0,),
    "personal_share": 0.3,
    "rounds": 101,
    "dim": 4,
    "privacy": Privacy(1.0, 1e-6),
    "trust": "secure-sum",
    "mechanism": "blt",
    "schedule": every(20),
    "acting": "eager",
    "calibration": "paper",
    "confidence": "proof",
    "alpha": 0.02,
    "exploration": 0.5,
    "reward_noise": 0.5,
    "centre": 0.5,
    "ratio": 2.0,
    "cohort": 9,
    "colluding": 1,
    "decode_at": "silo",
    "bits": 21,
    "visits": "public",
    "schema": Schema(actions=("A", "B", "C")),
    "policy": Policy("thompson"),
    "apprentice": True,
    "uncounted": "public",
    "people": 20,
}


def test_the_hash_changes_with_every_field() -> None:
    assert set(OTHER_VALUES) == {field.name for field in dataclasses.fields(Plan)}
    base = GOOD.changed(mechanism="tree")  # decodes with whole numbers, as P_alt must
    published, shared = base.changed(confidence="published"), base.changed(trust="secure-sum")
    ticking = base.changed(schedule=clock(5.0))  # each where it has an effect
    bases = {
        "exploration": published,
        "reward_noise": published,
        "colluding": shared,
        "people": ticking,
        "forget": base.changed(mechanism="toeplitz"),
        "personal": shared,
        "personal_share": shared.changed(personal=(1,)),
        "endless": base.changed(mechanism="toeplitz", forget=0.9),
    }  # where they have an effect
    hashes = {name: bases.get(name, base).changed(**{name: value}).hash for name, value in OTHER_VALUES.items()}
    known = {base.hash, published.hash, *hashes.values()}
    assert len(known) == len(hashes) + 2
    assert shared.hash == hashes["trust"]
    for field, value in (("epsilon", 2.0), ("adjacency", "add-remove"), ("participations", 2), ("silos_per_user", 2)):
        changed: dict[str, Any] = {field: value}
        assert base.changed(privacy=dataclasses.replace(PRIVACY, **changed)).hash != base.hash
    twice = dataclasses.replace(PRIVACY, participations=2)
    spaced = {base.changed(privacy=dataclasses.replace(twice, apart=apart)).hash for apart in (0, 1, 2)}
    assert len(spaced) == 3
    for schedule in (growing(1.2), growing(1.3), clock(1.0), clock(2.0)):
        assert base.changed(schedule=schedule).hash != base.hash
    assert base.changed().hash == base.hash == Plan.from_dict(base.as_dict()).hash


def test_a_plan_without_a_policy_is_what_it_was_before_there_were_any() -> None:
    """The data and the hash of a plan that says nothing of policies are those of earlier versions."""
    assert {"policy", "apprentice"}.isdisjoint(GOOD.as_dict())
    assert GOOD.hash == GOOD.changed(policy="ucb").hash == GOOD.changed(policy=Policy(), apprentice=False).hash
    explored = GOOD.changed(policy=Policy("inverse-gap", scale=2.0, floor=0.1))
    assert explored.as_dict()["policy"] == {"name": "inverse-gap", "scale": 2.0, "floor": 0.1}
    assert Plan.from_dict({**GOOD.as_dict(), "policy": "thompson"}) == GOOD.changed(policy=Policy("thompson"))
    assert explored.protocol.scales == GOOD.protocol.scales, "a policy costs no budget"
    assert explored.guarantee == GOOD.guarantee


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": Policy("thompson")}, "policy must be left out where silos act eagerly, got thompson"),
        ({"policy": Policy(floor=0.5)}, "policy must be left out where silos act eagerly, got ucb (floor 0.5)"),
        ({"apprentice": True}, "apprentice must be left out where silos act eagerly, got True"),
        ({"policy": "greedy"}, "policy must be one of ucb, thompson, inverse-gap; got 'greedy'"),
        ({"apprentice": "yes"}, "apprentice must be true or false, got 'yes'"),
    ],
)
def test_policies_are_for_lazy_silos(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        GOOD.changed(acting="eager", **changes)
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["ldp", "secure-sum", "central", "local", "sdp-vector-sum"])
def test_the_guarantee_says_what_an_applications_own_choice_may_depend_on(name: str) -> None:
    plan = plan_for(name, MANY)
    taught = plan.changed(apprentice=True)
    assert OWN_CHOICE not in plan.guarantee.assumes
    assert set(taught.guarantee.assumes) == {*plan.guarantee.assumes, OWN_CHOICE}
    assert taught.guarantee.steps == plan.guarantee.steps


def test_parties_that_derive_different_encoders_do_not_hash_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = GOOD.changed(), GOOD.changed()
    assert here.hash == GOOD.hash
    monkeypatch.setitem(there.encoder.__dict__, "fingerprint", "fitted on another machine")
    assert there.hash != here.hash


def test_unknown_names_in_data_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^plan does not know 'sigma'; it takes acting, alpha,"):
        Plan.from_dict({**GOOD.as_dict(), "sigma": 1.0})
    data = GOOD.as_dict()
    data["privacy"]["mu"] = 1.0
    with pytest.raises(ValueError, match=r"^privacy does not know 'mu'; it takes adjacency, apart, delta,"):
        Plan.from_dict(data)
    with pytest.raises(ValueError, match=r"^plan must give 'rounds', 'dim'$"):
        Plan.from_dict({"silos": 3})
    assert Plan.from_dict({"silos": 3, "rounds": 4, "dim": 2, "trust": "none"}) == Plan(3, 4, 2, trust="none")
    with pytest.raises(ValueError, match=r"^privacy must give 'delta'$"):
        Plan.from_dict({"silos": 3, "rounds": 4, "dim": 2, "privacy": {"epsilon": 1.0}})


SCHEDULES = st.one_of(
    st.builds(every, st.integers(1, 40)),
    st.builds(growing, st.floats(1.01, 5)),
    st.builds(clock, st.floats(0.1, 10)),
    st.builds(adaptive, st.floats(0.01, 100), st.booleans()),
)
BUDGETS = st.builds(
    Privacy,
    st.floats(1e-8, 1e4),
    st.floats(1e-12, 0.999),
    st.sampled_from(["replace-one", "add-remove"]),
    st.integers(1, 5),
    st.integers(1, 5),
)
FIELDS = {
    "silos": st.integers(1, 300),
    "rounds": st.integers(1, 60),
    "dim": st.integers(1, 6),
    "privacy": st.one_of(st.none(), BUDGETS),
    "trust": st.sampled_from(trust_models.names()),
    "mechanism": st.sampled_from(["tree", "toeplitz", "batches"]),
    "schedule": SCHEDULES,
    "acting": st.sampled_from(get_args(Acting)),
    "calibration": st.sampled_from(get_args(Calibration)),
    "confidence": st.sampled_from(sorted(get_args(Radii))),
    "alpha": st.floats(1e-6, 0.999),
    "centre": st.floats(0, 1),
    "ratio": st.sampled_from([1.0, 1.0, 0.1, 7.0]),
    "cohort": st.one_of(st.none(), st.integers(1, 300)),
    "colluding": st.sampled_from([None, None, 0, 1, 2, 3]),
    "decode_at": st.sampled_from(["analyzer", "analyzer", "silo"]),
    "bits": st.integers(1, 40),
}


@settings(max_examples=300)
@given(st.fixed_dictionaries(FIELDS))
def test_any_plan_is_refused_in_one_line_or_has_all_its_numbers(fields: dict[str, Any]) -> None:
    refused: ArgumentError | None = None
    try:
        plan = Plan(**fields)
    except ArgumentError as error:
        refused = error
    if refused is not None:
        assert refused.field in (*FIELDS, "epsilon", "batch", "participations", "silos_per_user")
        assert "\n" not in str(refused)
        return
    assert math.isfinite(plan.noise_std)
    assert plan.noise_std > 0 or not plan.guarantee.promised
    assert 0 < plan.learner.regularisers.min() <= plan.regulariser < math.inf
    assert 0 < plan.radius(0) <= plan.radius(plan.rounds) < math.inf
    assert plan.guarantee.statement
    assert Plan.from_dict(plan.as_dict()).hash == plan.hash


def prefix_of(plan: Plan, users: int, lead: tuple[int, ...] = ()) -> np.ndarray:
    rng = np.random.default_rng(users)
    x = rng.normal(size=(*lead, users, plan.dim))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(contributions(x, rng.random((*lead, users)), plan.bits).sum(axis=-2) * 2.0**-plan.bits)


@pytest.mark.parametrize("name", ["silo", "fed-lin-ucb", "isolated", "ldp"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_a_plan_fits_the_model_that_its_own_numbers_give(name: str, lead: tuple[int, ...]) -> None:
    plan = plan_for(name, MANY)
    prefix = prefix_of(plan, 4000, lead)
    model, repaired = plan.fit(prefix, 20)
    assert repaired == 0
    assert model.radius.shape == lead
    np.testing.assert_array_equal(model.radius, plan.radius(20))
    for index in np.ndindex(*lead):
        bias, matrix = unpack(prefix[index], plan.dim)
        inverse = np.linalg.inv(plan.regulariser * np.eye(plan.dim) + matrix)
        np.testing.assert_allclose(model.root[index] @ model.root[index].T, inverse, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(model.theta[index], inverse @ bias, rtol=1e-10, atol=1e-13)


def test_a_plan_repairs_a_model_at_its_own_floor() -> None:
    broken = Scales(0.0, -10 * GOOD.regulariser, 0.0).packed(GOOD.dim)
    model, repaired = GOOD.fit(broken, 100)
    assert repaired == 1
    np.testing.assert_allclose(model.root @ model.root.T, 2 * np.eye(GOOD.dim) / GOOD.regulariser, rtol=1e-6)
    nothing_known = GOOD.fit(np.zeros(GOOD.protocol.width), 0)
    assert nothing_known.repaired == 0
    np.testing.assert_allclose(nothing_known.model.root, np.eye(GOOD.dim) / math.sqrt(GOOD.regulariser))


def spent_by(plan: Plan, syncs: range) -> Spent:
    """What a silo's ledger says once it holds these releases of the plan."""
    entries: list[Entry] = []
    for sync in syncs:
        event = plan.release("north", 1, sync)
        assert event is not None
        entries.append(append(entries[-1].hash if entries else GENESIS, event))
    verify(entries)
    return spent(entries, mechanisms.encoder)


@pytest.mark.parametrize(
    "fields",
    [
        {"trust": "silo"},
        {"trust": "silo", "mechanism": "tree", "decode_at": "silo"},
        {"trust": "silo", "mechanism": "blt", "centre": 0.5, "ratio": 2.0},
        {"trust": "secure-sum"},
        {"trust": "secure-sum", "cohort": 6, "colluding": 2},
        {"trust": "secure-sum", "privacy": Privacy(1.0, 1e-5, "add-remove", 2, 3)},
        {"trust": "silo", "privacy": Privacy(1.0, 1e-5, "replace-one", 2, 3)},
    ],
    ids=str,
)
def test_all_releases_of_an_exact_plan_spend_its_budget_and_no_more(fields: dict[str, object]) -> None:
    plan = GOOD.changed(**fields)
    (term,) = spent_by(plan, range(10)).terms
    assert term.epsilon == pytest.approx(1.0, rel=1e-6)
    assert not term.overspent
    assert (term.released, term.redrawn, term.budget) == (10, (), (1.0, 1e-5))
    assert 0 < spent_by(plan, range(3)).epsilon < 1.0


def test_a_release_says_what_was_released_and_what_it_cost() -> None:
    event = GOOD.release("north", 2, 4)
    assert event is not None
    assert (event.silo, event.plan, event.term, event.trust) == ("north", GOOD.hash, 2, "silo")
    assert (event.mechanism, event.sync, event.syncs) == ("toeplitz", 4, 10)
    assert (event.adjacency, event.epsilon, event.delta) == ("replace-one", 1.0, 1e-5)
    assert event.released == GOOD.protocol.sends
    sigma = GOOD.protocol.scales.diagonal
    assert event.cost == Gaussian(sigma, sigma, GOOD.request.shift.total)
    with pytest.raises(ArgumentError, match=r"^sync must lie below the horizon of 10 releases, got 10$"):
        GOOD.release("north", 1, 10)
    assert GOOD.changed(trust="none", privacy=None).release("north", 1, 0) is None


def test_where_silos_share_the_noise_a_release_states_what_is_the_silos_own() -> None:
    plan = GOOD.changed(trust="secure-sum", cohort=6, colluding=2)
    event = plan.release("north", 1, 0)
    assert event is not None
    assert isinstance(event.cost, Gaussian)
    assert event.cost.own_sigma == pytest.approx(plan.protocol.scales.diagonal)
    assert event.cost.sigma == pytest.approx(2 * event.cost.own_sigma)  # four honest silos


def test_what_a_trusted_server_gets_has_no_noise_of_the_silos() -> None:
    central, clear = GOOD.changed(trust="central"), GOOD.changed(trust="none")
    event = clear.release("north", 1, 0)
    assert event is not None
    assert event.cost == Clear("everybody")
    assert spent_by(clear, range(1)).epsilon == math.inf
    event = central.release("north", 1, 0)
    assert event is not None
    assert event.cost == Entrusted("analyzer", central.request.exact_sigma(True), central.request.user_shift(True))
    assert spent_by(central, range(central.encoder.size)).epsilon == pytest.approx(PRIVACY.epsilon, rel=1e-6)


def test_counts_spend_the_budget_of_their_theorem_at_once() -> None:
    plan = Plan(3, 60, 4, Privacy(2.0, 0.05), "vector-sum", "tree", every(5), calibration="paper")
    protocol = plan.protocol
    assert isinstance(protocol, VectorSumProtocol)
    for sync, batches in ((0, 1), (3, 4), (7, 8)):
        event = plan.release("north", 1, sync)
        assert event is not None
        assert event.cost == Binomial(protocol.node(sync + 1).noise_bits, 3 * 5 * batches)
    assert spent_by(plan, range(1)).epsilon == spent_by(plan, range(12)).epsilon == 2.0


def test_a_shuffled_release_costs_what_it_would_without_a_shuffler() -> None:
    plan = plan_for("sdp-amplified", SHUFFLED, every(10))
    (term,) = spent_by(plan, range(5)).terms
    stated = float(str(plan.guarantee).split("Without a mixer, a silo's transcript is (")[1].split(",")[0])
    assert term.epsilon == pytest.approx(stated, rel=0.005)
    assert not term.overspent


def test_a_plan_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GOOD.silos = 3  # type: ignore[misc]


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central"])
def test_a_user_who_comes_several_times_costs_as_much_more(trust: str) -> None:
    once = GOOD.changed(trust=trust)
    several = once.changed(privacy=Privacy(1.0, 1e-5, participations=3))
    visits = once.changed(privacy=Privacy(1.0, 1e-5, silos_per_user=4))
    assert several.noise_std == pytest.approx(3 * once.noise_std)
    assert visits.noise_std == pytest.approx((2 if trust == "silo" else 4) * once.noise_std)


def test_half_as_much_reward_needs_less_noise_and_bias_can_have_less_of_it() -> None:
    centred = GOOD.changed(centre=0.5)
    assert centred.noise_std / GOOD.noise_std == pytest.approx(math.sqrt(2 + 0.5 + 1 / 32) / math.sqrt(4.5), rel=1e-4)
    weighted = GOOD.changed(ratio=4.0)
    assert weighted.protocol.scales.diagonal / weighted.protocol.scales.bias == pytest.approx(2.0)


def test_the_numbers_the_library_is_to_show() -> None:
    base = Plan(100, 10_000, 10, Privacy(1.0, 0.1))
    paper, silo, secure, central = (
        plan_for(name, base, every(25)).noise_std for name in ("ldp", "silo", "secure-sum", "central")
    )
    assert paper / silo >= 7
    assert paper / silo == pytest.approx(7.3, rel=0.01)
    assert silo / central == pytest.approx(10)
    assert secure / central == pytest.approx(math.sqrt(100 / 99))  # one of 100 silos may subtract its own noise
    amplified = plan_for("sdp-amplified", Plan(100, 10_000, 10, Privacy(1e-3, 1e-4), bits=16), every(25))
    assert amplified.protocol.scales.bias == pytest.approx(289_000, rel=0.01)
    assert plan_for("silo", base).syncs == pytest.approx(78, abs=2)
    assert plan_for("ldp", base).syncs == 400


def test_one_dimension_is_a_matrix_of_one_entry() -> None:
    law = Plan(5, 30, 1, Privacy(1.0, 0.1), "silo").noise_law
    np.testing.assert_array_equal(law.off_diagonal, law.diagonal)
    assert Plan(5, 30, 1, Privacy(1.0, 0.1), "silo", bits=16).regulariser == pytest.approx(145.568, rel=1e-5)


def test_theorem_noise_is_theorem_noise() -> None:
    base = Plan(100, 10_000, 10, Privacy(1.0, 1e-5))
    assert plan_for("ldp", base).protocol.scales.packed(10) == pytest.approx([31.9196] * 65, rel=1e-5)
    assert plan_for("ldp-alt", base).protocol.scales == plan_for("ldp", base).protocol.scales
    one_agent = plan_for("super-agent", base)  # a tree over 10,000 rounds, noise drawn once
    kappa = 1 + math.log2(10_000)
    assert one_agent.protocol.scales.bias == pytest.approx(math.sqrt(8 * kappa * (math.log(2e5) + 1)))
    assert one_agent.noise_std == pytest.approx(one_agent.protocol.scales.bias * math.sqrt(13))  # 8191 has 13 ones


# -- numbers that nobody writes down -----------------------------------------------------------------------------------


def test_what_a_plan_is_where_nothing_is_said() -> None:
    plan = Plan(4, 100, 2, Privacy(1.0, 1e-5))
    said = (plan.exploration, plan.reward_noise, plan.centre, plan.ratio, plan.alpha, plan.bits)
    assert said == (1.0, 1.0, 0.0, 1.0, 0.01, 20)
    assert "rewards entering as y - 0," in str(plan.guarantee)


def test_all_silos_may_be_needed_and_all_may_be_visited() -> None:
    plan = Plan(4, 100, 2, Privacy(1.0, 1e-5, silos_per_user=4), cohort=4)
    assert plan.smallest_cohort == 4
    assert "each of 4 silos" in str(plan.guarantee)


@pytest.mark.parametrize("silos", [3, 1000])
def test_the_finest_grid_leaves_a_total_two_bits_of_room(silos: int) -> None:
    """Sums of everybody, and noise of twelve deviations, times what the encoder makes of them: below 2^62."""

    def needed(plan: Plan) -> float:
        largest = silos * 100 + 12 * max(plan.protocol.scales) * math.sqrt(silos)
        return math.log2(largest * plan.encoder.column_norm) + plan.bits + plan.encoder.fraction_bits

    plan = Plan(silos, 100, 2, Privacy(1.0, 1e-5), "silo")
    with pytest.raises(ValueError, match="bits must be at most") as error:
        plan.changed(bits=60)
    finest = plan.changed(bits=int(str(error.value).split("at most ")[1].split(" ")[0]))
    assert 61 < needed(finest) <= 62
    with pytest.raises(ValueError, match="bits must be at most"):
        plan.changed(bits=finest.bits + 1)


def test_two_features_have_an_entry_off_the_diagonal() -> None:
    law = Plan(4, 100, 2, Privacy(1.0, 1e-5), "silo").noise_law
    assert law.off_diagonal == pytest.approx(law.diagonal / math.sqrt(2), rel=1e-9)
    one = Plan(4, 100, 1, Privacy(1.0, 1e-5), "silo").noise_law
    assert one.off_diagonal == pytest.approx(one.diagonal)


@pytest.mark.parametrize("mechanism", ["batches", "tree", "toeplitz"])
@pytest.mark.parametrize(("silos", "ratio"), [(1, 1.0), (16, 9.0)])
def test_the_people_for_whom_there_is_room_and_their_noise_fill_62_bits(
    mechanism: str, silos: int, ratio: float
) -> None:
    """One more would be too many; noise counts with twelve deviations of the widest number, over all silos."""
    plan = Plan(silos, 100, 3, Privacy(1e-4, 1e-9), "silo", mechanism, every(10), ratio=ratio, bits=18)
    noise = 12 * max(plan.protocol.scales) * math.sqrt(silos)
    one = 2.0 ** (plan.bits + plan.encoder.fraction_bits) * np.linalg.norm(plan.encoder.coefficients, axis=0).max()
    assert noise > 1e4
    assert (plan.capacity + noise) * one <= 2.0**62 * (1 + 1e-12)
    assert (plan.capacity + 1 + noise) * one > 2.0**62 * (1 - 1e-12)


def in_the_clear(people: int, bits: int) -> Plan:
    """No noise, and an encoder that changes no size: bits are counted exactly."""
    return Plan(2, people // 2, 1, trust="none", mechanism="batches", schedule=every(people // 2), bits=bits)


def test_sums_that_fill_62_bits_fit_and_the_next_do_not() -> None:
    assert in_the_clear(2**42, 20).capacity == 2**42
    with pytest.raises(ArgumentError, match=r"^bits must be at most 19 here, got 20: the sums of 4,398,046,511,106"):
        in_the_clear(2**42 + 2, 20)


def test_where_the_coarsest_grid_is_still_too_fine_there_are_too_many_rounds() -> None:
    with pytest.raises(ArgumentError, match=r"^bits must be at most 1 here, got 2"):
        in_the_clear(2**61, 2)
    assert in_the_clear(2**61, 1).bits == 1
    with pytest.raises(ArgumentError, match=r"^rounds must be fewer: the sums of"):
        in_the_clear(2**62, 1)


@pytest.mark.parametrize(
    ("ratio", "said"), [(2.0, "nearer to 1, got 2:"), (1.0, "1, as it is, with a larger epsilon and delta")]
)
def test_where_noise_alone_is_too_large_the_ratio_is_named(ratio: float, said: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^ratio must be {said}"):
        GOOD.changed(privacy=Privacy(1e-30, 1e-30), ratio=ratio)


def test_a_cohort_that_changes_nothing_is_refused_and_one_of_all_silos_is_not() -> None:
    shuffled = SHUFFLED.changed(trust="shuffle", mechanism="tree", schedule=every(50), calibration="paper")
    local = GOOD.changed(trust="local", mechanism="batches")
    for plan, why in (
        (shuffled, "it needs every silo"),
        (local, "it does not run live, so no silo is ever missing"),
    ):
        assert plan.changed(cohort=plan.silos).smallest_cohort == plan.silos
        with pytest.raises(ArgumentError, match=rf"^cohort must be left out for trust '{plan.trust}', got 4: {why}$"):
            plan.changed(cohort=4)


def test_where_the_data_decide_there_may_be_a_sync_after_every_round() -> None:
    plan = GOOD.changed(mechanism="tree", schedule=adaptive(2.0, private=True))
    assert plan.request.times == tuple(range(1, 101))
    assert plan.request.largest_batch == 1
    assert (plan.encoder.size, len(plan.noise_law.bias)) == (100, 100)


SCHEMA = Schema({"age": Number(0, 120)}, actions=("A", "B"))


def test_a_schema_says_the_dimension() -> None:
    plan = Plan(silos=3, rounds=10, schema=SCHEMA, trust="none")
    assert plan.dim == SCHEMA.dim == 4
    assert plan == Plan(silos=3, rounds=10, dim=4, schema=SCHEMA, trust="none")
    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan
    without_dim = {name: value for name, value in plan.as_dict().items() if name != "dim"}
    assert Plan.from_dict(without_dim) == plan
    assert plan.changed(schema=SCHEMA.without("age")).dim == 2
    assert plan.changed(schema=None) == Plan(3, 10, 4, trust="none")
    assert pickle.loads(pickle.dumps(plan)).hash == plan.hash
    with pytest.raises(ValueError, match=r"^dim must be left out or the schema's, 4, got 5$"):
        plan.changed(dim=5)
    with pytest.raises(ValueError, match=r"^schema must be a Schema or None, got 3$"):
        plan.changed(schema=3)
    with pytest.raises(ValueError, match=r"^context.age type must be one of number, category, hashed; got 'None'$"):
        Plan.from_dict({"silos": 3, "rounds": 10, "trust": "none", "schema": {"context": {"age": {}}}})


def test_a_plan_without_a_schema_is_what_it_was() -> None:
    assert "schema" not in GOOD.as_dict()
    assert GOOD.changed(schema=None).hash == GOOD.hash


SMALL = {"silos": np.uint8(250), "rounds": np.int8(100), "dim": np.int8(3), "bits": np.uint8(20)}


@pytest.mark.parametrize("trust", ["secure-sum", "silo", "central", "local"])
def test_numbers_of_numpy_neither_wrap_around_nor_lose_digits(trust: str) -> None:
    """200 visits to each of 200 silos are 40,000, not the 64 that are left of them in eight bits: at 25 times less
    noise than they need."""
    mechanism = "batches" if trust == "local" else "toeplitz"
    small = Privacy(np.float32(0.1), np.float32(1e-5), "replace-one", np.uint8(200), np.uint8(200))  # type: ignore[arg-type]
    plain = Privacy(float(np.float32(0.1)), float(np.float32(1e-5)), "replace-one", 200, 200)
    values: Any = {"trust": trust, "mechanism": mechanism, "ratio": np.float32(0.3), "centre": np.float16(0.1)}
    one = Plan(**SMALL, privacy=small, schedule=growing(np.float32(1.3)), **values)  # type: ignore[arg-type]
    sizes: Any = {name: int(number) for name, number in SMALL.items()}
    exact = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
    other = Plan(**sizes, privacy=plain, schedule=growing(float(np.float32(1.3))), **exact)
    assert one.protocol.scales == other.protocol.scales
    assert (one.hash, str(one.guarantee)) == (other.hash, str(other.guarantee))
    for value in (one, one.privacy, one.schedule):
        assert not any(isinstance(getattr(value, field.name), np.generic) for field in dataclasses.fields(value))  # type: ignore[arg-type]


def test_a_budget_in_few_digits_leaves_none_to_others() -> None:
    """Equal arguments share one computation, whatever their type: it is made in full."""
    gaussian_sigma.cache_clear()
    coarse = gaussian_sigma(np.float32(0.5), np.float32(2**-20))
    assert type(coarse) is float
    gaussian_sigma.cache_clear()
    assert coarse == gaussian_sigma(0.5, 2**-20)
    assert gaussian_epsilon(np.float32(0.5), 2**-20) == gaussian_epsilon(0.5, 2**-20)
    assert gaussian_delta(np.float32(0.5), 1.0) == gaussian_delta(0.5, 1.0)  # type: ignore[arg-type]


def test_a_notebook_shows_the_budget_that_was_asked_for_and_not_a_smaller_one() -> None:
    plan = Plan(3, 50, 2, Privacy(1.0000001, 1.2345678e-5))
    assert "(1.0000001, 1.2345678e-05)" in plan._repr_html_()
    assert "<td>none</td>" in Plan(3, 50, 2, trust="none")._repr_html_()


def test_on_a_clock_there_is_room_for_a_thousand_million_people_and_no_more() -> None:
    """2^62 units, of which one person takes 2^bits: 10^9 of them leave room for 32 bits and a little."""
    plan = Plan(2, 10, 2, trust="none", mechanism="batches", schedule=clock(60.0), bits=32)
    assert 10**9 <= plan.capacity < 1.08e9
    with pytest.raises(ArgumentError, match=r"^bits must be at most 32 here, got 33: the sums of 1,000,000,000 people"):
        plan.changed(bits=33)


def test_how_many_visits_fit_is_assumed_where_nobody_knows_how_many_come() -> None:
    """A silo whose sums are full falls silent, which depends on how many came."""
    plan = Plan(2000, 30, 2, Privacy(1.0, 1e-5), schedule=clock(60.0))
    said = f"no silo counts more than {plan.capacity // 2000:,} visits: a silo that does stops releasing"
    assert said in plan.guarantee.assumes[-1]
    endless = plan.changed(forget=0.9, endless=True)
    assert (
        f"more than {endless.capacity // 2000:,} visits in one release: a silo that does"
        in endless.guarantee.assumes[-1]
    )
    for other in (plan.changed(schedule=every(3)), plan.changed(trust="local", mechanism="batches")):
        assert "no silo counts more" not in str(other.guarantee)  # rounds are few enough; nothing runs live
    assert plan.changed(trust="none", privacy=None).guarantee.assumes == ()


@pytest.mark.parametrize(
    ("fields", "served"),
    [
        ({}, "local"),
        ({"privacy": None, "trust": "none"}, "local"),
        ({"privacy": Privacy(1.0, 1e-5, silos_per_user=2)}, "public"),  # another silo may count them
        ({"acting": "eager"}, "public"),
        ({"uncounted": "public"}, "public"),
        ({"uncounted": "local"}, "local"),
    ],
)
def test_whom_a_silo_may_serve_by_all_that_it_knows(fields: dict[str, Any], served: str) -> None:
    plan = GOOD.changed(**fields)
    assert plan.serves_uncounted == plan.request.uncounted == served
    if fields.get("acting") == "eager" or (plan.privacy and plan.privacy.silos_per_user > 1):
        with pytest.raises(ArgumentError, match=r"^uncounted must not be 'local' where"):
            plan.changed(uncounted="local")


def test_where_silos_do_not_share_noise_nobody_is_counted_as_colluding() -> None:
    colluding = {name: plan_for(name, MANY).colluders for name in ("silo", "central", "local", "secure-sum")}
    assert colluding == {"silo": 0, "central": 0, "local": 0, "secure-sum": 1}
    shared = Plan(5, 50, 3, PRIVACY)
    assert [shared.changed(colluding=number).colluders for number in (0, 1, 4)] == [0, 1, 4]
    with pytest.raises(ArgumentError, match=r"^silos must be more than 5 for trust 'secure-sum'"):
        shared.changed(colluding=5)
    with pytest.raises(ArgumentError, match=r"^colluding must be at most the 5 silos, got 6"):
        shared.changed(colluding=6)


def test_where_the_data_decide_every_round_may_be_the_last_of_a_batch() -> None:
    plan = GOOD.changed(mechanism="tree", schedule=adaptive(3.0, private=True))
    assert plan.request.times == tuple(range(1, 101))
    assert plan.request.share == 0.5
    assert GOOD.request.times == GOOD.times
    assert GOOD.request.share == 1


@pytest.mark.parametrize("name", ["local", "silo", "secure-sum", "central", "ldp"])
def test_noise_is_that_of_all_who_come_whatever_a_round_is(name: str) -> None:
    """Where people add the noise, there is as much of it in a day as people come on it, and not as in one visit."""
    ticking = plan_for(name, MANY.changed(schedule=clock(86_400.0), people=20), clock(86_400.0))
    ours, played = (dataclasses.astuple(plan.noise_law) for plan in (ticking, ticking.in_visits()))
    np.testing.assert_allclose(np.stack(ours[:3]), np.stack(played[:3]), rtol=1e-12)


def test_a_clock_in_visits_has_a_round_for_each_of_them() -> None:
    ticking = Plan(3, 4, 2, PRIVACY, schedule=clock(60.0), people=5)
    played = ticking.in_visits()
    assert (played.rounds, played.times, played.people) == (20, (5, 10, 15, 20), 1)
    assert GOOD.in_visits() is GOOD


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_file_holds_the_plan_and_for_whom_it_was_chosen(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"plan.{suffix}"
    if suffix == "toml":
        GOOD.save(file)
        assert "consortium" not in tomllib.loads(file.read_text())
        GOOD.save(file, {"days": 365})
        assert tomllib.loads(file.read_text())["consortium"] == {"days": 365}
    else:
        file.write_text(json.dumps(GOOD.as_dict()))
    assert Plan.load(file) == GOOD
    listed = tmp_path / "list.json"
    listed.write_text("[1]")
    with pytest.raises(ArgumentError, match=r"^plan must be a table of fields, got list"):
        Plan.load(listed)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_noise_of_a_prefix_sum_is_that_of_its_releases(dim: int) -> None:
    plan = Plan(4, 20, dim, PRIVACY, "silo", "batches", every(5))  # prefix k adds up k releases of each of 4 silos
    scales, law, gain = plan.protocol.scales, plan.noise_law, 2 * np.sqrt([1, 2, 3, 4])
    off = scales.diagonal if dim == 1 else scales.off_diagonal
    for found, scale in ((law.bias, scales.bias), (law.diagonal, scales.diagonal), (law.off_diagonal, off)):
        assert found == pytest.approx(scale * gain)
    assert plan.noise_std == pytest.approx(4 * scales.bias)


def test_the_finest_grid_of_all_is_that_of_one_round_of_one_silo() -> None:
    Plan(1, 1, 1, trust="none", mechanism="batches", schedule=every(1), bits=62)
    with pytest.raises(ArgumentError, match=r"^bits must be at most 62, got 63: sums are 64-bit integers"):
        Plan(1, 1, 1, trust="none", mechanism="batches", schedule=every(1), bits=63)


def test_what_came_later_is_written_only_where_it_says_something() -> None:
    later = {"people", "uncounted", "schema", "policy", "apprentice"}
    assert later.isdisjoint(GOOD.as_dict())
    said = Plan(
        3, 4, 2, PRIVACY, schedule=clock(60.0), people=2, uncounted="local", policy=Policy("thompson"), apprentice=True
    )
    assert later - {"schema"} <= set(said.as_dict())
    assert Plan.from_dict(said.as_dict()) == said


@pytest.mark.parametrize("name", ["plan.toml", "plan.TOML", "plan.json"])
def test_a_plan_is_written_as_its_name_says(tmp_path: Path, name: str) -> None:
    GOOD.save(tmp_path / name, {"silos": 3})
    assert Plan.load(tmp_path / name) == GOOD
    assert (tmp_path / name).read_text().startswith("{") is (name == "plan.json")


def test_a_plan_is_not_written_under_a_name_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"path must end in \.toml or \.json"):
        GOOD.save(tmp_path / "plan")
