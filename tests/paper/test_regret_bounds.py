"""The regret bounds: above every curve that their proofs cover, by the formulas on paper, and how they grow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.paper import regret_bounds
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, every
from fedbandit.simulator import tasks
from fedbandit.simulator.runner import simulate

SILOS, ROUNDS, DIM, BATCH = (
    40,
    50_000,
    2,
    100,
)  # where bounds lie below what acting at random loses: they can be crossed
TASK = tasks.synthetic(DIM, arms=4)
ASKED = Plan(SILOS, ROUNDS, DIM, privacy=Privacy(200.0, 0.1), confidence="proof")
EVERY = every(BATCH)
COVERED = {
    "FedLinUCB": presets.fed_lin_ucb(ASKED, schedule=EVERY),
    "Theorem LDP": presets.ldp(ASKED, schedule=EVERY),
    "Theorem LDP, P_alt": presets.ldp_alt(ASKED, schedule=EVERY),
    "Corollary LDP": presets.ldp(ASKED, schedule=every(math.isqrt(ROUNDS // SILOS))),
    "P_vec, accounted exactly": presets.secure_sum(ASKED, EVERY).changed(trust="vector-sum", mechanism="tree"),
    "secure-sum": presets.secure_sum(ASKED, EVERY),
    "silo": presets.silo(ASKED, EVERY),
}


@pytest.fixture(scope="module")
def result():
    return simulate(TASK, COVERED, runs=1, seed=0)


def crossed(plan: Plan, rounds: Sequence[int], regret: Floats) -> bool:
    """Whether a curve of group regret reaches the bound of this plan anywhere."""
    return any(lost >= regret_bounds.bound(plan, at).total for at, lost in zip(rounds, regret, strict=True))


@pytest.mark.parametrize("name", COVERED)
def test_regret_stays_below_the_bound_wherever_its_proof_holds(result, name):
    plan, chance = COVERED[name], tasks.chance(TASK, SILOS, seed=0)
    assert (plan.confidence, plan.acting) == ("proof", "lazy")  # what the proof is about
    curve = result.frame.filter(result.frame["name"] == name)
    rounds = curve["round"].to_list()
    assert not crossed(plan, rounds, curve["regret"].to_numpy())
    assert (result.final(name) > 0).all()
    assert crossed(plan, rounds, chance * np.array(rounds))  # and whoever learns nothing crosses it
    assert "vacuous" not in regret_bounds.bound(plan).says(chance)


def test_a_theorems_own_noise_can_make_its_bound_vacuous_at_every_size_that_can_be_played():
    plan = presets.sdp_vector_sum(Plan(20, 2_000, 3, privacy=Privacy(20.0, 0.1), confidence="proof"))
    regret = simulate(tasks.synthetic(3, 10), {"it": plan}, runs=3, seed=0).final("it")
    assert (regret < regret_bounds.bound(plan).per_round).all()
    long = plan.changed(silos=1_000, rounds=100_000)
    assert "nobody can lose more than 1,000" in regret_bounds.bound(long).says(464.0)


def test_amplification_where_its_theorem_reaches():
    plan = presets.sdp_amplified(Plan(200, 50, 3, privacy=Privacy(1e-4, 1e-3), confidence="proof", bits=12))
    regret = simulate(tasks.synthetic(3, 10), {"it": plan}, runs=2, seed=0).final("it")
    found = regret_bounds.bound(plan)
    assert (regret < found.per_round).all()
    assert found.says(100.0).startswith("vacuous here")


def test_the_bound_by_the_formulas_of_the_proof():
    plan = COVERED["Theorem LDP"]
    smallest = plan.regulariser / 2  # Sigma_N, for lambda = 2 Sigma_N
    users = SILOS * ROUNDS
    growth = DIM * math.log(1 + users / (DIM * smallest))
    found = regret_bounds.bound(plan)
    assert found.radius == pytest.approx(plan.radius(ROUNDS))
    assert found.good == pytest.approx(2 * math.sqrt(2) * found.radius * math.sqrt(2 * users * growth))
    assert found.bad == pytest.approx(SILOS * BATCH * growth / math.log(2))
    assert found.total == found.good + found.bad
    eager = regret_bounds.bound(plan.changed(acting="eager"))
    union = math.sqrt(2 * math.log(2 * SILOS / 0.01) + growth) - math.sqrt(2 * math.log(2 / 0.01) + growth)
    assert eager.radius - found.radius == pytest.approx(union)


def test_no_proof_covers_a_schedule_that_depends_on_data():
    plan = COVERED["Theorem LDP"]
    with pytest.raises(ValueError, match="schedule must be public for a regret bound"):
        regret_bounds.bound(plan.changed(schedule=adaptive(4.0)))


def test_vacuous_is_said_against_the_largest_loss_and_against_chance():
    free = presets.fed_lin_ucb(Plan(100, 10_000, 10, trust="none", confidence="proof"))
    found = regret_bounds.bound(free)
    assert 37 < found.per_round < 100
    assert "acting at random loses 37.15" in found.says(37.15)
    noisy = regret_bounds.bound(presets.ldp(Plan(100, 10_000, 10, privacy=Privacy(0.2, 0.1))))
    assert "nobody can lose more than 100" in noisy.says(37.15)
    long = regret_bounds.bound(presets.fed_lin_ucb(Plan(20, 200_000, 3, trust="none")))
    assert long.per_round < 0.25 * 20
    assert "vacuous" not in long.says(0.3 * 20)


def test_theorem_sdp_is_linear_in_t_throughout_its_own_range():
    silos, dim, rates = 100, 10, []
    for rounds in (100, 1_000, 10_000, 100_000, 1_000_000):
        plan = presets.ldp(Plan(silos, rounds, dim, privacy=Privacy(1.0, 1e-6), bits=8))
        cap = regret_bounds.cap_of_theorem_sdp(silos, rounds, plan.encoder.size)
        for share in (1.0, 0.1):
            within = plan.changed(privacy=Privacy(share * cap, 1e-6))
            order = regret_bounds.order_sdp(within)
            assert order.privacy > silos * rounds  # more than can be lost
        rates.append(regret_bounds.order_sdp(plan.changed(privacy=Privacy(cap, 1e-6))).privacy / rounds)
        local = regret_bounds.order_ldp(plan.changed(privacy=Privacy(1.0, 1e-6)))  # without a cap: sqrt T
        assert local.privacy / math.sqrt(rounds) == pytest.approx(
            (silos * dim) ** 0.75 * math.log(1e6) ** 0.25 * math.log(plan.encoder.size / 0.01) ** 0.25
        )
    assert max(rates) < 1.2 * min(rates)  # while T grows ten-thousandfold
    speaks = regret_bounds.silos_where_theorem_sdp_speaks(10_000, 400, dim)
    assert speaks == pytest.approx(1.93e7, rel=0.01)


def test_the_epsilons_of_figure_1a_lie_above_the_cap_of_theorem_sdp():
    cap = regret_bounds.cap_of_theorem_sdp(100, 10_000, 400)
    assert [1e-3 / cap, 1e-4 / cap] == pytest.approx([32, 3.2], rel=0.01)


def test_the_orders_of_the_shuffle_theorems():
    plan = presets.ldp(Plan(100, 10_000, 10, privacy=Privacy(0.2, 0.1)))
    kappa, last = 1 + math.log2(400), math.log(400 / 0.01) ** 0.25
    factor = 10**0.75 * 1000 / math.sqrt(0.2) * last
    assert regret_bounds.order_sdp(plan).privacy == pytest.approx(factor * math.log(100 * kappa / 0.1) ** 0.75)
    assert regret_bounds.order_sdp_vec(plan).privacy == pytest.approx(factor * math.log(kappa * 100 / 0.1) ** 0.75)
    order = regret_bounds.order_ldp(plan)
    assert order.batches == pytest.approx(10 * 100 * 25 * math.log(10_000))
    assert order.learning == pytest.approx(10 * 1000 * math.log(1e6 / 0.01))
    assert order.total == pytest.approx(sum(order))
