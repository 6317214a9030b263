"""What is promised is true: every promise is compared with the worst user that can be found."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from itertools import product

import numpy as np
import pytest

from fedbandit.bandit.statistics import Scales, contributions
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.accounting import compose_gdp, gaussian_epsilon, gaussian_sigma, theorem_ldp_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import Gaussian
from fedbandit.protocol import trust as trust_models
from fedbandit.protocol.guarantee import Acting, Calibration, Guarantee, Request, nothing
from fedbandit.schedule import adaptive, every, growing

ANGLES = np.linspace(0, 2 * np.pi, 721)
USERS = np.array([(n, m, a, y, z) for n, m, a, y, z in product((0, 1), (0, 1), ANGLES, (0, 1), (0, 1))], dtype=float)


def worst_user(plan: Plan, adjacency: str) -> float:
    """The longest move of one batch sum by one user, every number divided by one silo's noise in it (dim 2)."""
    x = np.stack([USERS[:, 0], np.zeros(len(USERS))], axis=1)
    other = USERS[:, 1:2] * np.stack([np.cos(USERS[:, 2]), np.sin(USERS[:, 2])], axis=1)
    moved = contributions(x, USERS[:, 3], plan.bits, plan.centre)
    if adjacency == "replace-one":
        moved = moved - contributions(other, USERS[:, 4], plan.bits, plan.centre)
    return float(np.linalg.norm(moved * 2.0**-plan.bits / plan.protocol.scales.packed(plan.dim), axis=1).max())


def true_epsilon(plan: Plan) -> float:
    """The epsilon of the whole transcript against whom the promise is made, composed by hand."""
    privacy = plan.privacy
    assert privacy is not None
    eager = plan.acting == "eager"
    mu = worst_user(plan, "replace-one" if eager else privacy.adjacency) * privacy.participations
    mu *= np.linalg.norm(plan.encoder.coefficients, axis=0).max()
    if eager:  # everybody in a batch may change with one of them
        mu *= max(np.diff((0, *plan.times)))
    if plan.trust == "secure-sum":
        told = 1 if plan.colluding is None else plan.colluding  # silos that subtract their own noise
        mu *= privacy.silos_per_user / math.sqrt((plan.cohort or plan.silos) - told)
    elif plan.trust == "central":
        mu *= privacy.silos_per_user
    else:
        mu *= math.sqrt(privacy.silos_per_user)
    return gaussian_epsilon(mu, privacy.delta)


def plan(trust: str = "silo", mechanism: str = "toeplitz", **fields: object) -> Plan:
    shared = {"privacy": Privacy(1.0, 1e-5), "schedule": every(5), **fields}
    return Plan(6, 60, 2, trust=trust, mechanism=mechanism, **shared)  # type: ignore[arg-type]


EXACT = {
    "silo": plan(),
    "silo, tree": plan(mechanism="tree"),
    "silo, blt": plan(mechanism="blt"),
    "silo, a coarse grid": plan(bits=6),
    "silo, add-remove": plan(privacy=Privacy(1.0, 1e-5, "add-remove")),
    "silo, three rounds a user": plan(privacy=Privacy(0.5, 1e-3, participations=3)),
    "silo, four silos a user": plan(privacy=Privacy(0.5, 1e-3, silos_per_user=4)),
    "silo, centred": plan(centre=0.5),
    "silo, off centre": plan(centre=0.2),
    "silo, off centre the other way": plan(centre=0.9),
    "silo, weighted": plan(ratio=3.0),
    "silo, weighted the other way": plan(ratio=0.2, centre=0.5),
    "silo, eager": plan(acting="eager"),
    "silo, eager, three rounds a user": plan(acting="eager", privacy=Privacy(1.0, 1e-5, participations=3)),
    "silo, eager, add-remove": plan(acting="eager", privacy=Privacy(1.0, 1e-5, "add-remove")),
    "silo, growing": plan(schedule=growing(1.3)),
    "P_alt": plan(mechanism="tree", decode_at="silo"),
    "secure-sum": plan("secure-sum"),
    "secure-sum, few and colluding": plan("secure-sum", cohort=5, colluding=2),
    "secure-sum, nobody colluding": plan("secure-sum", colluding=0),
    "secure-sum, four silos a user": plan("secure-sum", privacy=Privacy(1.0, 1e-5, silos_per_user=4)),
    "secure-sum, eager": plan("secure-sum", acting="eager", schedule=growing(2.0)),
    "central": plan("central"),
    "central, all of it": plan("central", privacy=Privacy(2.0, 0.1, "add-remove", 2, 3), centre=0.5, ratio=2.0),
    "local": plan("local", "batches"),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_calibration_promises_what_the_worst_user_gets_and_no_less(name: str) -> None:
    guarantee = EXACT[name].guarantee
    assert guarantee.epsilon is not None
    assert guarantee.epsilon == EXACT[name].privacy.epsilon  # type: ignore[union-attr]
    found = true_epsilon(EXACT[name])
    assert found <= guarantee.epsilon * (1 + 1e-9)
    slack = 0.85 if name == "silo, a coarse grid" else 0.995  # a grid point is rarely rounded the worst way
    assert found >= guarantee.epsilon * slack


PAPER = [
    plan(mechanism="tree", calibration="paper", privacy=Privacy(epsilon, delta, adjacency, participations))  # type: ignore[arg-type]
    for epsilon, delta, adjacency, participations in product(
        (0.1, 1.0, 5.0, 20.0), (0.1, 1e-5), ("replace-one", "add-remove"), (1, 2, 3)
    )
]


def test_the_theorems_noise_promises_only_where_its_slack_covers_replaced_and_repeated_users() -> None:
    promised = [made for made in PAPER if made.guarantee.promised]
    refused = [made for made in PAPER if not made.guarantee.promised]
    assert len(promised) >= 10
    assert len(refused) >= 5
    for made in promised:
        assert true_epsilon(made) <= made.privacy.epsilon  # type: ignore[union-attr]
    for made in refused:
        assert true_epsilon(made) >= 0.99 * made.privacy.epsilon  # type: ignore[union-attr]
        assert "the theorem's noise gives an exact epsilon of" in made.guarantee.statement


def test_the_theorems_exact_epsilon_at_the_usual_budget() -> None:
    base = Plan(100, 10_000, 10, Privacy(1.0, 1e-5))
    text = str(plan_for("ldp", base).guarantee)
    stated = re.search(r"this is exactly \(([\d.]+), 1e-05\)-DP", text)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(0.72, abs=0.005)
    sigma, shift = plan_for("ldp", base).protocol.scales.bias, math.sqrt(4.5)
    assert float(stated[1]) == pytest.approx(gaussian_epsilon(3 * shift / sigma, 1e-5), rel=1e-3)


def test_the_theorem_is_cited_for_its_own_mechanism_alone() -> None:
    for mechanism in ("tree", "toeplitz", "batches"):
        made = plan(mechanism=mechanism, calibration="paper")
        assert made.guarantee.promised
        assert ("a datum enters kappa" in str(made.guarantee)) == (mechanism == "tree")
        assert true_epsilon(made) <= 1.0


FREE = ("none", "public-contexts")  # trust models that never promise anything


@pytest.mark.parametrize("trust", sorted(set(trust_models.names()) - {"local"}))
@pytest.mark.parametrize("calibration", ["exact", "paper", "published"])
@pytest.mark.parametrize(
    "schedule", [every(5), every(1), growing(1.5), adaptive(3.0), adaptive(3.0, private=True)], ids=str
)
def test_eager_acting_never_promises_with_the_papers_constants(trust: str, calibration: str, schedule: object) -> None:
    silos = 2000 if trust == "shuffle" else 6
    budget = Privacy(1e-3, 1e-4) if trust == "shuffle" else Privacy(1.0, 0.1)
    try:
        made = Plan(silos, 60, 2, budget, trust, "tree", schedule, acting="eager", calibration=calibration)  # type: ignore[arg-type]
    except ValueError:
        return  # refused altogether: no promise either
    if calibration == "exact" and isinstance(schedule, type(every(5)) | type(growing())) and trust not in FREE:
        assert made.guarantee.promised
        assert any(
            step.startswith("Silos act eagerly, so a user can change the actions of all")
            for step in made.guarantee.steps
        )
        lazily = made.changed(acting="lazy", trust="silo" if trust == "shuffle" else trust)  # no clones of raw sums
        whole = 1e-3 if trust == "vector-sum" else 1e-6  # whole bits and steps: nearly as many as are needed
        assert made.noise_std == pytest.approx(lazily.noise_std * max(np.diff((0, *made.times))), rel=whole)
    else:
        assert not made.guarantee.promised


@pytest.mark.parametrize("trust", trust_models.names())
@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("calibration", ["exact", "paper", "published"])
def test_a_schedule_decided_by_raw_data_never_promises(trust: str, acting: Acting, calibration: Calibration) -> None:
    mechanism = "batches" if trust == "local" else "tree"
    silos, budget = (2000, Privacy(1e-3, 1e-4)) if trust == "shuffle" else (6, Privacy(1.0, 0.1))
    try:
        made = Plan(silos, 60, 2, budget, trust, mechanism, adaptive(3.0), acting=acting, calibration=calibration)
    except ValueError:
        return
    assert not made.guarantee.promised
    assert made.guarantee.statement.startswith("No privacy guarantee: ")


@pytest.mark.parametrize(
    "privacy", [Privacy(1.0, 1e-5), Privacy(0.5, 0.1, "add-remove", 2), Privacy(2.0, 1e-3, silos_per_user=3)]
)
def test_the_private_rule_and_the_releases_share_one_budget(privacy: Privacy) -> None:
    made = plan(mechanism="tree", schedule=adaptive(3.0, private=True), privacy=privacy)
    assert made.guarantee.promised
    users = privacy.participations * math.sqrt(privacy.silos_per_user)
    releases = worst_user(made, privacy.adjacency) * made.encoder.column_norm * users
    covariance = math.sqrt(2) if privacy.adjacency == "replace-one" else 1.0
    rule = covariance * math.sqrt(1 + math.floor(math.log2(60))) * users / made.schedule_sigma
    together = gaussian_epsilon(compose_gdp(releases, rule), privacy.delta)
    assert together <= privacy.epsilon
    assert together == pytest.approx(privacy.epsilon, rel=0.005)
    assert releases == pytest.approx(rule, rel=0.002)  # half of mu^2 each


def test_the_private_rule_counts_its_rounding_too() -> None:
    made = plan(mechanism="tree", schedule=adaptive(3.0, private=True), bits=5)
    moved = math.sqrt(2) + 2 * 2 * 2.0**-6  # both users' four entries, each half a grid step
    column = math.sqrt(1 + math.floor(math.log2(60)))
    assert made.schedule_sigma == pytest.approx(gaussian_sigma(1.0, 1e-5) * moved * column * math.sqrt(2))


def test_the_theorems_noise_under_a_private_rule_states_what_both_spend() -> None:
    made = plan("silo", "tree", schedule=adaptive(3.0, private=True), calibration="paper", privacy=Privacy(0.2, 0.1))
    stated = re.search(r"this is exactly \(([\d.]+), 0.1\)-DP", str(made.guarantee))
    assert stated is not None
    releases = worst_user(made, "replace-one") * made.encoder.column_norm
    both = compose_gdp(releases, math.sqrt(0.5) / gaussian_sigma(0.2, 0.1))
    assert gaussian_epsilon(both, 0.1) > gaussian_epsilon(releases, 0.1)
    assert float(stated[1]) == pytest.approx(gaussian_epsilon(both, 0.1), abs=1e-3)


NO_PROMISE = {"fed-lin-ucb", "ldp-eager", "dubey", "isolated"}


@pytest.mark.parametrize("name", NAMES)
def test_which_presets_promise(name: str) -> None:
    base = Plan(200, 50, 3, Privacy(2e-3, 1e-4) if name == "sdp-amplified" else Privacy(1.0, 0.1))
    made = plan_for(name, base)
    assert made.guarantee.promised == (name not in NO_PROMISE)
    if made.guarantee.promised:
        assert (made.guarantee.epsilon, made.guarantee.delta) == (made.privacy.epsilon, made.privacy.delta)  # type: ignore[union-attr]
        assert made.guarantee.adjacency == "replace-one"
        assert made.guarantee.against
        assert len(made.guarantee.steps) >= 3
        assert any("norm at most 1 and rewards lie in [0, 1]" in line for line in made.guarantee.assumes)
    else:
        assert (made.guarantee.epsilon, made.guarantee.delta, made.guarantee.steps) == (None, None, ())


def test_numbers_in_the_proof_follow_from_each_other() -> None:
    text = str(plan(privacy=Privacy(1.0, 1e-5, participations=2)).guarantee)
    mu = float(re.search(r"mu-GDP with mu = ([\d.]+)", text)[1])  # type: ignore[index]
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(1.0, rel=1e-3)
    sigma = float(re.search(r"standard deviation ([\d.]+) on the diagonal", text)[1])  # type: ignore[index]
    sensitivity = float(re.search(r"sensitivity [\d.]+ x [\d.]+ = (\d+\.\d+)", text)[1])  # type: ignore[index]
    assert sensitivity / sigma == pytest.approx(mu, rel=1e-4)
    assert "2 x 2.12" in text


def test_amplification_says_that_the_mixer_is_not_what_protects() -> None:
    made = plan_for("sdp-amplified", Plan(100, 10_000, 10, Privacy(1e-3, 1e-4), bits=16))
    assert "With this much noise, the same holds without the mixer." in made.guarantee.statement
    unshuffled = gaussian_epsilon(3 * math.sqrt(4.5) / made.protocol.scales.bias, 1e-4)
    assert unshuffled <= 1e-3


def test_where_only_the_shuffler_protects_the_lemmas_sensitivity_is_not_believed_but_computed() -> None:
    """A million silos amplify so much that each has little noise; but a replaced user moves a stream by more than 1."""
    made = Plan(10**6, 1, 2, Privacy(0.1, 1e-6), "shuffle", "tree", every(1), calibration="paper")
    unshuffled = gaussian_epsilon(math.sqrt(4.5) / made.protocol.scales.bias, 1e-6)
    assert unshuffled > 0.1
    assert made.guarantee.promised  # by the clones, with the true sensitivity
    assert f"Without the mixer it is ({unshuffled:.3g}" in made.guarantee.statement
    live = made.changed(visits="public")  # whose releases hold as many points as rewards come
    assert not live.guarantee.promised
    problem = "the lemma's sensitivity is too small here: this noise gives an epsilon of"
    assert f"{problem} {unshuffled:.3g}" in live.guarantee.statement


def test_a_guarantee_prints_like_the_end_of_a_proof() -> None:
    assert str(Guarantee("So it is.", 1.0, 0.1, steps=("a", "b"), assumes=("c",))) == (
        "So it is.\nBecause:\n  1. a\n  2. b\nAssuming:\n  - c"
    )
    assert not Guarantee("Nothing.").promised
    assert str(nothing("nobody asked")) == "No privacy guarantee: nobody asked."
    for line in str(plan("secure-sum").guarantee).splitlines():
        assert line.strip()


@pytest.mark.parametrize("trust", ["silo", "secure-sum"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1 - 1e-16), (1.2345644, 1e-5)])
def test_a_promise_is_not_rounded_into_another(trust: str, epsilon: float, delta: float) -> None:
    made = Plan(3, 10, 2, Privacy(epsilon, delta), trust=trust, bits=24)
    assert f"({epsilon!r}, {delta!r})".replace("1.0,", "1,") in made.guarantee.statement


@pytest.mark.parametrize("epsilon, delta", [(None, 0.1), (1.0, None), (None, None)])
def test_half_a_promise_is_none(epsilon: float | None, delta: float | None) -> None:
    assert Guarantee("", epsilon, delta).pair == "nothing"
    assert Guarantee("", 1.0, 0.1).pair == "(1, 0.1)"


def test_a_request_that_says_no_more_is_that_of_a_plain_plan() -> None:
    """Rounds are counted, visits are private, the model chooses, and everybody is served by the public model."""
    asked = Plan(3, 20, 2, Privacy(1.0, 1e-5), uncounted="public").request
    optional = ("counted", "visits", "apprentice", "uncounted")
    said = {field.name: getattr(asked, field.name) for field in fields(asked) if field.name not in optional}
    assert Request(**said) == asked


@pytest.mark.parametrize("ratio", [1e-6, 1.0, 1e6])
def test_the_narrowest_noise_must_be_four_steps_wide_whichever_it_is(ratio: float) -> None:
    """The bias has sigma / sqrt(ratio), entries off the diagonal sigma / sqrt 2."""
    request = Plan(3, 20, 2, Privacy(1.0, 1e-5), "silo", "tree", ratio=ratio, bits=24).request
    step = 2.0**-24
    for narrow in (Scales(3.99, 9.0, 9.0), Scales(9.0, 3.99, 9.0), Scales(9.0, 9.0, 3.99)):
        with pytest.raises(
            ValueError,
            match=r"^bits must be at least 25 here, got 24: noise of 2\.38e-07 must be at least 4 grid steps",
        ):
            request.on_grid(narrow.times(step))
    drawn = request.on_grid(Scales(4.0, 5.0, 6.0).times(step))
    assert tuple(drawn) == pytest.approx([math.sqrt(wide**2 + 8) * step for wide in (4.0, 5.0, 6.0)], rel=1e-12)
    (least,) = re.findall(
        r"where it is at least (\S+) steps wide \(4 are needed\)\. With 8 squared", request.grid_step(drawn)
    )
    assert float(least) == pytest.approx(math.sqrt(24), rel=1e-2)


@pytest.mark.parametrize(
    "mechanism, bits", [("tree", 24), ("batches", 24), ("toeplitz", 34), ("blt", 34), ("early", 36)]
)
def test_the_grid_that_is_printed_is_that_of_the_releases(mechanism: str, bits: int) -> None:
    plan = Plan(3, 20, 2, Privacy(1.0, 1e-5), "silo", mechanism, bits=24)
    assert plan.protocol.release_bits == bits
    assert f"is drawn on the grid 2^-{bits}, where" in str(plan.guarantee)


def test_a_notebook_shows_answers_steps_and_assumptions_where_there_are_any() -> None:
    promise = Plan(3, 20, 2, Privacy(1.0, 1e-5)).guarantee
    shown = promise._repr_html_()
    for text in ("Because", "Assuming", "<ol", "<table", "Against whom", "With that mu it is exactly (1, 1e-05)-DP"):
        assert text in shown
    shown = nothing("why")._repr_html_()
    for text in ("Because", "Assuming", "<ol", "<ul", "<table"):
        assert text not in shown
    assert "No privacy guarantee: why." in shown


def test_a_release_with_the_noise_of_the_theorem_costs_that_noise_all_of_it_the_silos_own() -> None:
    """Nothing is released beside it, and nobody shares it."""
    plan = Plan(3, 20, 2, Privacy(1.0, 1e-5), "silo", "tree", every(5), calibration="paper")
    event = plan.release("silo-1", 1, 0)
    assert event is not None
    assert isinstance(event.cost, Gaussian)
    sigma = theorem_ldp_sigma(1.0, 1e-5, 3.0)  # four syncs: a datum enters 1 + log2 4 p-sums
    assert (event.cost.sigma, event.cost.own_sigma) == pytest.approx((sigma, sigma), rel=1e-12)
    assert event.cost.sensitivity == pytest.approx(math.sqrt(4.5), rel=1e-5)
