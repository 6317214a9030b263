"""The paper's claims, each measured a second way; the refuted ones as small cases anyone can run."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.bandit.statistics import Scales, unpack
from fedbandit.paper import claims
from fedbandit.paper.claims import radii, ranges, scaling, theorems, user_shift
from fedbandit.paper.claims.claim import Outcome
from fedbandit.paper.reference import NonPrivate, Parameters, private_fedlinucb, private_fedlinucb_lazy
from fedbandit.paper.reference.p_vec import a_1d, r_1d
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta
from fedbandit.privacy.amplification import shuffled_epsilon, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.determinant import DeterminantRule
from fedbandit.protocol.mechanisms import encoder
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import every
from fedbandit.simulator.simulated import runs_noise


@pytest.fixture(scope="module")
def measured() -> dict[str, claims.PaperClaim]:
    return {claim.name: claim for claim in (make() for make in claims.CLAIMS)}


def test_outcomes(measured):
    outcomes = {
        "confirmed": {"noise", "syncs", "p-sums", "vector-sum range"},
        "other constant": {"noise by amplification", "radius", "lemma amp", "P_1D", "one event"},
        "other exponent": set(),  # only simulations have that outcome
        "narrower range": {"adjacency", "amplification", "vector-sum noise", "Theorem SDP", "many silos", "batches"},
        "refuted": {"sensitivity", "rewards", "line 15", "title features"},
    }
    found = {name: {claim.name for claim in measured.values() if claim.outcome == name} for name in outcomes}
    assert found == outcomes
    assert set(outcomes) == set(get_args(Outcome))


def test_noise_grows_with_the_silos_under_ldp_and_not_under_vector_sum_or_secure_sum():
    base = Plan(100, 10_000, 10, privacy=Privacy(1.0, 0.1), colluding=0)
    at = [presets.ldp(base.changed(silos=silos)).noise_std for silos in (1, 100)]
    assert at[1] / at[0] == pytest.approx(10)
    against_any_silo = [presets.secure_sum(base.changed(silos=silos, colluding=None)) for silos in (2, 100)]
    at = [plan.noise_std / presets.secure_sum(base).noise_std for plan in against_any_silo]
    assert at == pytest.approx([math.sqrt(2), math.sqrt(100 / 99)])  # one silo's share is not counted on
    assert scaling.exponent((1, 10, 100), (3.0, 30.0, 300.0)) == pytest.approx(1)
    assert scaling.exponent((1, 10, 100), (3.0, 3.0, 3.0)) == pytest.approx(0)


def test_noise_by_amplification_grows_with_the_silos_at_a_fixed_epsilon():
    claim = scaling.amplified_noise_claim()
    few, many = (presets.sdp_amplified(Plan(m, 10_000, 10, Privacy(1e-5, 1e-4), bits=8)) for m in (10_000, 100_000))
    grown = math.log10((many.noise_std / few.noise_std) ** 2)
    assert f", {grown:.2f}, " in claim.measured[0]
    assert grown > 0.2


def test_that_growth_is_the_logarithms_of_the_lemma_and_a_factor_of_at_most_e():
    """sigma_0 = sqrt(2 log(1.25/delta_0)) / epsilon_0, and epsilon = 4 epsilon_0 sqrt(e^(T epsilon_0) log(4/slack) / M)
    to first order, so M sigma_0^2 is 32 e^(T epsilon_0) / epsilon^2 times these two logarithms."""
    for silos in (10**5, 10**7):
        budget = theorem_sdp(1e-5, 1e-4, silos, 10_000, 9)
        whole = 32 * math.exp(10_000 * budget.local_epsilon) / budget.epsilon**2 * scaling.logarithms(budget, silos)
        assert silos * budget.sigma**2 == pytest.approx(whole, rel=0.01)
        assert math.exp(10_000 * budget.local_epsilon) < math.e
    assert scaling.amplified_outcome([0.28], [0.0]) == "other constant"
    assert scaling.amplified_outcome([0.28], [0.02]) == "other exponent"
    assert scaling.amplified_outcome([0.0], [0.0]) == "confirmed"


def test_syncs():
    assert scaling.syncs(100, 10_000) == 1000  # B = 10, T/B = 1,000 = sqrt(100 * 10,000)
    assert scaling.syncs(4, 100) == 20


@pytest.mark.parametrize("syncs", [1, 2, 3, 7, 8, 9, 64, 100, 400])
def test_p_sums_of_one_datum_by_listing_them(syncs):
    nodes = []
    for k in range(1, syncs + 1):
        size = next(2**i for i in range(12) if (k >> i) & 1)
        nodes.append(range(k - size + 1, k + 1))
    most = max(sum(datum in node for node in nodes) for datum in range(1, syncs + 1))
    assert scaling.largest_memberships(syncs)[-1] == most == 1 + int(math.log2(syncs))


def test_algorithm_1_lets_one_user_move_the_whole_batch_and_lazy_does_not():
    plan = presets.ldp_eager(Plan(100, 10_000, 10, privacy=Privacy(1.0, 1e-5)))
    moved = {}
    for algorithm in (private_fedlinucb, private_fedlinucb_lazy):
        sums = []
        for first in (0, 1):  # who the first user is: one who can only take e_1, or only e_2

            def contexts(t: int, i: int, first: int = first) -> Floats:
                return np.eye(10)[[first, first]] if t == 1 else np.eye(10)[:2]

            run = algorithm(
                silos=1,
                rounds=25,
                dim=10,
                batch=25,
                regulariser=plan.regulariser,
                radius=plan.radius,
                contexts=contexts,
                reward=lambda t, i, a: 1.0,
                bias_protocol=NonPrivate(),
                covariance_protocol=NonPrivate(),
            )
            sums.append((run.biases[0], run.covariances[0]))
        moved[algorithm] = [float(np.linalg.norm(a - b)) for a, b in zip(*sums, strict=True)]
    assert moved[private_fedlinucb] == pytest.approx([25 * math.sqrt(2)] * 2)  # all 24 others changed too
    assert moved[private_fedlinucb_lazy] == pytest.approx([math.sqrt(2)] * 2)

    ours = user_shift.replaced_user(plan)
    assert [ours.bias, ours.covariance] == pytest.approx(moved[private_fedlinucb])
    mu = plan.encoder.column_norm * 50 / plan.protocol.scales.bias  # 50 = 25 sqrt 2 in each of two streams
    assert gaussian_delta(mu, ours.epsilon) == pytest.approx(1e-5)
    assert ours.epsilon > 25
    assert not plan.guarantee.promised
    assert user_shift.replaced_user(plan.changed(acting="lazy")).epsilon < 1


def test_replacing_a_user_moves_more_than_the_theorems_constant_but_its_slack_covers_that():
    x, y = np.array([1.0, 0.0]), np.array([-0.5, math.sqrt(0.75)])  # cosine -1/2, both rewards 1
    bias, covariance = x - y, np.outer(x, x) - np.outer(y, y)
    joint = math.hypot(np.linalg.norm(bias), np.linalg.norm(covariance))
    assert joint == pytest.approx(math.sqrt(4.5))
    assert joint > math.sqrt(2)  # what sensitivity 1 in each stream allows together
    for budget in user_shift.BUDGETS:
        plan = presets.ldp(Plan(100, 10_000, 10, privacy=budget))
        exact = user_shift.theorem_slack(budget)
        assert exact < budget.epsilon
        mu = plan.encoder.column_norm * joint / plan.protocol.scales.bias
        assert gaussian_delta(mu, exact) <= budget.delta * (1 + 1e-6)


def test_the_slack_does_not_last_for_every_delta():
    far = Privacy(1.0, 1e-50)
    assert user_shift.theorem_slack(far, syncs=256) > 1  # K a power of 2: kappa has no slack of its own
    assert user_shift.theorem_slack(far, syncs=400) < 1
    assert user_shift.largest_failing_delta(1.0, 256) == pytest.approx(1e-38)
    limit = user_shift.theorem_slack(Privacy(1.0, 1e-300), syncs=256)
    assert 1.04 < limit < math.sqrt(9 / 8)


def test_such_a_plan_promises_nothing():
    plan = presets.ldp(Plan(100, 6_400, 10, privacy=Privacy(1.0, 1e-50)))
    assert plan.encoder.size == 256
    assert not plan.guarantee.promised
    assert "the theorem's noise gives an exact epsilon of 1.01" in plan.guarantee.statement


def test_the_published_rewards_leave_the_unit_interval():
    rng = np.random.default_rng(1)
    directions = rng.standard_normal((2, 200_000, 9))
    cosine = np.einsum("ij,ij->i", *(d / np.linalg.norm(d, axis=1, keepdims=True) for d in directions))
    rewards = (1 + cosine) / 2 + rng.normal(0, 0.5, cosine.size)
    outside = np.mean((rewards < 0) | (rewards > 1))
    stated = float(user_shift.reward_claim().measured[0].split("%")[0]) / 100
    tolerance = 4 * math.sqrt(0.25 / cosine.size) + 5e-4  # sampling, and the printed digits
    assert abs(outside - stated) < tolerance
    assert abs(outside * 1.3 - stated) > tolerance


def test_the_stated_radius_misses_where_users_lie_in_one_direction_and_the_proofs_does_not():
    stated, proven = (Plan(100, 10_000, 10, privacy=Privacy(1.0, 0.1), confidence=kind) for kind in ("theory", "proof"))
    assert radii.on_one_direction(presets.ldp(stated), runs=20).runs > 0.9
    assert radii.on_one_direction(presets.ldp(proven), runs=20).runs == 0
    small = Plan(20, 500, 3, privacy=Privacy(1.0, 0.1))
    assert radii.on_the_papers_users(presets.ldp(small), runs=3).runs == 0


def test_misses_are_counted_by_run_and_by_sync():
    found = radii.Misses.of(np.array([[1.0, 3.0], [1.0, 1.0]]), np.array([2.0, 2.0]))
    assert found == (0.5, 0.25)


def test_errors_are_those_of_a_regression_on_the_same_noise():
    """One sync, by the definition: theta-hat from V and U, and the norm of what it misses."""
    plan = presets.ldp(Plan(4, 10, 3, privacy=Privacy(1.0, 0.1)), schedule=every(10))
    noise = runs_noise(0, (0,), "one direction")
    protocol = plan.protocol.pooled()
    drawn = protocol.draw(noise, (1, 1))[0, 0] * 2.0**-protocol.release_bits
    U, N = unpack(drawn, 3)
    V = plan.regulariser * np.eye(3) + N + 40 * np.diag([1.0, 0.0, 0.0])
    difference = np.eye(3)[1] - np.linalg.solve(V, U)
    error = math.sqrt(difference @ V @ difference)
    missed = radii.on_one_direction(plan, runs=1).runs
    assert missed == (error > plan.radius(10))


def test_advanced_composition_in_the_range_that_theorem_sdp_vec_claims():
    # Dwork & Roth, Theorem 3.20, at epsilon_0 = 15, the end of P_vec's range: kappa runs of it compose to this
    kappa, delta, share = 9, 0.1, 15.0
    composed = share * math.sqrt(2 * kappa * math.log(2 / delta)) + kappa * share * math.expm1(share)
    assert composed > 1e6 * 60 * math.sqrt(2 * kappa * math.log(2 / delta))
    assert 20 < ranges.largest_composed(delta, kappa) < 22


def test_amplification_adds_more_noise_than_no_shuffler_and_stops_early():
    plan = ranges.plan(1e-3, 1e-4)
    assert presets.sdp_amplified(plan).protocol.scales.bias > 10 * presets.ldp(plan).protocol.scales.bias
    assert 1 < ranges.amplification_gain(1e-4, 1e-4) < 10 / (4 * math.sqrt(math.log(4)))  # not sqrt(M) = 10
    with pytest.raises(ValueError, match="epsilon must be at most about"):
        presets.sdp_amplified(ranges.plan(0.2, 0.1))


def test_lemma_amps_order_hides_a_constant_near_eight():
    assert 6 < ranges.lemma_constant(1000, 10_000, 1e-10) < 9


def test_p_1d_as_printed_decodes_without_bias_and_doubles_the_sensitivity():
    bound, grid, noise_bits = Fraction(1), 10, 40
    low, high = (math.floor((x + bound) * grid / bound) for x in (-bound, bound))
    assert high - low == 2 * grid  # and not g
    assert math.floor(2 * bound * grid / (2 * bound)) == grid  # with the range 2L
    # literal bits: 2g ones of the value and all noise bits but g leave no room, which is what the bound is on
    over = sum(math.comb(noise_bits, k) * 0.25**k * 0.75 ** (noise_bits - k) for k in range(noise_bits - grid + 1, 41))
    assert 0 < over <= 10 ** ranges.overflow_exponent(noise_bits, grid)
    parameters = Parameters(grid, noise_bits, 0.25, span=1.0)
    generator = np.random.default_rng(0)
    decoded = [a_1d(r_1d(1.7, 1.0, parameters, generator), 1, 1.0, parameters) for _ in range(4_000)]
    assert np.mean(decoded) == pytest.approx(1.7, abs=5 * float(np.std(decoded)) / math.sqrt(4_000))  # above L


def test_amplification_pays_with_enough_silos():
    assert ranges.noise_ratio(1e-5, 10_000) < 0.7
    assert ranges.noise_ratio(1e-4, 10_000) > 1
    assert ranges.noise_ratio(1e-4, 100_000) < 0.5
    plan = ranges.plan(1e-4, 1e-4).changed(silos=100_000, bits=12)
    made = [preset(plan).protocol.scales.bias for preset in (presets.sdp_amplified, presets.ldp)]
    assert made[0] / made[1] == pytest.approx(ranges.noise_ratio(1e-4, 100_000))


def test_lemma_amp_refuses_fewer_silos_than_its_condition_asks_for():
    slack, rounds = 0.104, 10_000
    least = theorems.fewest_silos(1.0, slack)
    assert math.ceil(least) == 129
    shuffled_epsilon(1 / rounds, math.ceil(least) + 1, rounds, slack)
    with pytest.raises(ValueError, match="silos must satisfy"):
        shuffled_epsilon(1 / rounds, math.floor(least), rounds, slack)


def test_bad_epochs_grow_with_the_silos_by_multiplying_matrices():
    for silos in (10, 1_000):
        V, bad = np.eye(2), 0
        for _ in range(100):
            along = min(silos, int(V[1, 1]) + 1)
            grown = V + np.diag([silos - along, along])
            bad += np.linalg.det(grown) > 2 * np.linalg.det(V)
            V = grown
        assert theorems.bad_epochs(silos, 100) == bad
    assert theorems.bad_epochs(10**9, 100) > 2 * math.log2(100)


def test_line_15_to_the_letter_counts_the_first_batch_at_every_sync():
    batches, held, total = [1.0, 10.0, 100.0], 0.0, 0.0
    for batch in batches:
        total += batch  # the private cumulative statistic
        held += total  # line 15
    assert held == sum(count * batch for count, batch in zip(theorems.counted_by_line_15(3), batches, strict=True))
    assert held == 123.0


def test_noise_of_p_vec_is_424_times_its_order_whatever_the_number_of_users():
    protocol = presets.sdp_vector_sum(ranges.plan(1.0, 0.1)).protocol
    assert isinstance(protocol, VectorSumProtocol)
    share, delta = 0.5 / (2 * math.sqrt(2 * 9 * math.log(2 / 0.05))), 0.05 / (2 * 9)  # a stream, 9 p-sums
    order = math.log(4 * (10**2 + 1) / delta) / share
    for k in (1, 2, 256):
        assert protocol.node(k).std / order == pytest.approx(424.3, rel=0.01)


def test_noise_can_undo_the_determinant_growth_that_counts_synchronisations():
    # eq. com-gap: without noise each synchronisation raises log det by D/n' at least; a noisy matrix may even shrink
    old = np.diag([100.0, 100.0])
    grown = old + np.diag([30.0, 0.0])
    noise = np.diag([-40.0, -20.0])  # one standard deviation of LDP noise is 497 here, at (1, 0.1) and M = 100
    assert np.linalg.slogdet(grown)[1] > np.linalg.slogdet(old)[1] > np.linalg.slogdet(grown + noise)[1]
    assert np.linalg.eigvalsh(grown + noise).min() > 0
    assert presets.ldp(ranges.plan(1.0, 0.1)).noise_std == pytest.approx(497, abs=1)


def test_the_determinant_rule_bounds_what_is_lost_between_syncs_and_a_noisy_one_does_not():
    """eq. det: 2 beta times the widths since the last sync add up to at most 2 beta sqrt(2 D), for the rule has not
    fired yet; eq. det-new: noise that hides what was seen keeps a rule from firing where that is long exceeded."""
    dim, threshold, bits, generator = 3, 4.0, 20, np.random.default_rng(3)
    rule = DeterminantRule(dim, bits, threshold, Scales(0.0, 0.0, 0.0), encoder("tree", 256))
    upper, root = np.triu_indices(dim), np.eye(dim)  # V of the last sync is the identity
    largest = 0.0
    for _ in range(20):
        V, widths = np.eye(dim), 0.0
        for waited in range(1, 200):
            x = generator.standard_normal(dim)
            x /= np.linalg.norm(x)
            width = math.sqrt(x @ np.linalg.solve(V, x))
            V += np.outer(x, x)
            if rule.asks((V - np.eye(dim))[upper] * 2.0**bits, root, waited):
                break
            widths += width
        largest = max(largest, widths)
        assert widths <= math.sqrt(2 * threshold)
    assert largest > 0.5 * math.sqrt(2 * threshold)  # and is not far above what happens
    V, widths = np.eye(dim), 0.0
    for waited in range(1, 200):
        x = np.eye(dim)[waited % dim]
        widths += math.sqrt(x @ np.linalg.solve(V, x))
        V += np.outer(x, x)
        noisy = 1e-4 * (V - np.eye(dim))  # what was seen and noise that cancels most of it, as a Gaussian's may
        assert not rule.asks(noisy[upper] * 2.0**bits, root, waited)
    assert widths > 3 * math.sqrt(2 * threshold)


@pytest.mark.parametrize("syncs", [255, 256, 400, 511])
def test_total_noise_is_at_most_what_the_overview_says(syncs: int):
    epsilon, delta, silos = 1.0, 0.1, 100
    plan = presets.ldp(Plan(silos, 25 * syncs, 10, privacy=Privacy(epsilon, delta)))
    kappa = 1 + math.log2(syncs)
    stated = 8 * silos * kappa**2 * (math.log(2 / delta) + epsilon) / epsilon**2
    assert 0.7 * stated < plan.noise_std**2 < stated


def test_prefix_sums_would_put_a_datum_into_every_shuffled_release():
    # Remark "Importance of communicating P-sums"
    syncs = 400
    prefix_sums = np.tril(np.ones((syncs, syncs)))
    assert np.count_nonzero(prefix_sums[:, 0]) == syncs
    assert scaling.largest_memberships(syncs)[-1] == 9
