"""The paper's claims, each measured a second way; the refuted ones as small cases anyone can run."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.paper import claims
from fedbandit.paper.claims import gap, radii, ranges, scaling, user_shift
from fedbandit.paper.reference import NonPrivate, private_fedlinucb, private_fedlinucb_lazy
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol


@pytest.fixture(scope="module")
def measured() -> dict[str, claims.PaperClaim]:
    return {claim.name: claim for claim in (make() for make in claims.CLAIMS)}


def test_outcomes(measured):
    refuted = {"sensitivity", "rewards", "amplification", "vector-sum range", "vector-sum noise", "P_1D"}
    other = {"adjacency", "radius", "lemma amp"}
    for name, claim in measured.items():
        expected = "refuted" if name in refuted else "confirmed with other constants" if name in other else "confirmed"
        assert claim.outcome == expected, claim


def test_noise_grows_with_the_silos_under_ldp_and_not_under_vector_sum_or_secure_sum():
    base = Plan(100, 10_000, 10, privacy=Privacy(1.0, 0.1), colluding=0)
    at = [presets.ldp(base.changed(silos=silos)).noise_std for silos in (1, 100)]
    assert at[1] / at[0] == pytest.approx(10)
    against_any_silo = [presets.secure_sum(base.changed(silos=silos, colluding=None)) for silos in (2, 100)]
    at = [plan.noise_std / presets.secure_sum(base).noise_std for plan in against_any_silo]
    assert at == pytest.approx([math.sqrt(2), math.sqrt(100 / 99)])  # one silo's share is not counted on
    assert scaling.exponent((1, 10, 100), (3.0, 30.0, 300.0)) == pytest.approx(1)
    assert scaling.exponent((1, 10, 100), (3.0, 3.0, 3.0)) == pytest.approx(0)


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
        assert user_shift.theorem_slack(budget) < budget.epsilon


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


def test_the_stated_radius_does_not_cover_the_noise_and_the_proofs_does():
    found = radii.coverage(presets.ldp(Plan(100, 1_000, 5, privacy=Privacy(1.0, 0.1))), draws=300)
    assert found.stated > 0.99
    assert found.proven == 0
    assert found.ratio > 1.3


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


def test_a_value_of_p_1d_does_not_fit_into_the_bits_of_the_pseudo_code():
    x, bound, grid = Fraction(7, 10), Fraction(1), 10
    assert math.floor((x + bound) * grid / bound) > grid
    assert math.floor((x + bound) * grid / (2 * bound)) <= grid


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


def test_prefix_sums_would_put_a_datum_into_every_shuffled_release():
    # Remark "Importance of communicating P-sums"
    syncs = 400
    prefix_sums = np.tril(np.ones((syncs, syncs)))
    assert np.count_nonzero(prefix_sums[:, 0]) == syncs
    assert scaling.largest_memberships(syncs)[-1] == 9


def test_the_gap_to_the_super_agent():
    found = gap.measured(16, runs=2)
    assert found.noise == pytest.approx(4)  # sqrt(M)
    assert found.bound == pytest.approx(2)  # M^(1/4)
    assert found.log_regret > 2 * found.stderr
    same = gap.measured(1, runs=2)
    assert same.bound == pytest.approx(1)
