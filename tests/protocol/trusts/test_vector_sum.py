"""P_vec by counts against P_vec by bits: the same law, the promised noise, and no more memory than a tree."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales, contributions, unpack, width
from fedbandit.paper.reference import Parameters, VectorSum, paper_parameters
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import advanced_composition_share
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.protocol.vector_coding import Coding, ExactCoding, PublishedCoding, TheoremCoding
from fedbandit.schedule import adaptive, clock, every
from tests.statistical import assert_std, covariance_verdict, mean_verdict, same_counts_verdict

SILOS, DIM, BITS = 2, 2, 20
BATCHES = (2, 1, 1)  # users of one silo
SYNCS = len(BATCHES)
SAMPLES = 4000


TINY = TheoremCoding(12.0, 0.5, constant=1.0)  # g of 4 or 5 and b of 1, so that bits can be drawn literally
EXACT = ExactCoding(Scales(2.0, 4.0, 3.0), -20.0, SILOS)  # steps of three lengths
PRINTED = PublishedCoding(1.206, 0.5)  # b of 11.89, which is cut to 11 where it is sampled


def protocol(coding: Coding | None = TINY) -> VectorSumProtocol:
    """These parameters, or those of the theorem."""
    made = Plan(SILOS, 8, DIM, Privacy(4.0, 0.5), "vector-sum", "tree", every(2), calibration="paper").protocol
    assert isinstance(made, VectorSumProtocol)
    short = replace(made.encoder, size=SYNCS)
    return replace(made, batch_users=BATCHES, encoder=short, coding=coding or made.coding)


def users() -> list[np.ndarray]:
    """Features and rewards, one array (silos, users, dim + 1) per batch."""
    rng = np.random.default_rng(1)
    batches = []
    for count in BATCHES:
        x = rng.normal(size=(SILOS, count, DIM))
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        batches.append(np.concatenate([x, rng.random((SILOS, count, 1))], axis=-1))
    return batches


def packed(batch: np.ndarray, samples: int, pooled: bool) -> np.ndarray:
    """The same users in every sample: (samples, silos, users, width)."""
    points = contributions(batch[..., :-1], batch[..., -1], BITS)
    points = points.reshape(1, -1, points.shape[-1]) if pooled else points
    return np.broadcast_to(points, (samples, *points.shape))


def sampled(made: VectorSumProtocol, samples: int, seed: int, pooled: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Counts that reach the analyzer (samples, syncs, width), and decoded prefix sums of the same shape."""
    noise = SimulatedNoise(np.random.default_rng(seed))
    made = made.pooled() if pooled else made
    state = composition.init(made, (samples,))
    counts, prefixes = [], []
    for users_of_batch in users():
        batch = made.collect(state.silos, packed(users_of_batch, samples, pooled), noise)
        state, transcript = composition.send(made, state, batch, noise)
        state = composition.receive(made, state, transcript)
        counts.append(made.total(transcript.held))
        prefixes.append(state.prefix)
    return np.stack(counts, axis=1), np.stack(prefixes, axis=1)


def true_prefixes() -> np.ndarray:
    return np.cumsum([packed(batch, 1, True).sum(axis=(0, 1, 2)) for batch in users()], axis=0) * 2.0**-BITS


def literal(made: VectorSumProtocol, samples: int, seed: int, noise_bits: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The same two arrays from literal bits, shuffled and counted; `noise_bits` more than there should be."""
    generator = np.random.default_rng(seed)
    by_users = {made.node(k).users: made.node(k) for k in range(1, SYNCS + 1)}

    def parameters(n: int) -> Parameters:
        node = by_users[n]
        return Parameters(node.grid, node.noise_bits + noise_bits, 0.25, node.subtracted, node.span)

    counts, prefixes = np.zeros((samples, SYNCS, width(DIM)), dtype=np.int64), np.zeros((samples, SYNCS, width(DIM)))
    for sample in range(samples):
        streams = [VectorSum(SILOS, BATCHES, shape, 1.0, parameters, generator) for shape in ((DIM,), (DIM, DIM))]
        for k, batch in enumerate(users()):
            x, y = batch[..., :-1], batch[..., -1:]
            points = x * y, x[..., :, None] * x[..., None, :]
            decoded, ones = [], []
            for stream, data in zip(streams, points, strict=True):
                bits = stream.shuffle([stream.randomize(i, data[i].sum(axis=0), list(data[i])) for i in range(SILOS)])
                ones.append(np.bincount(bits[:, 0], weights=bits[:, 1]).astype(np.int64))
                decoded.append(stream.analyze(bits))
            counts[sample, k] = np.concatenate(ones)
            prefixes[sample, k] = np.concatenate([decoded[0], decoded[1][np.triu_indices(DIM)]])
    return counts, prefixes


@pytest.fixture(scope="module", params=[TINY, PRINTED], ids=["repaired", "published"])
def by_bits(request: pytest.FixtureRequest) -> tuple[Coding, np.ndarray, np.ndarray]:
    return request.param, *literal(protocol(request.param), 600, seed=3)


@pytest.mark.parametrize("pooled", [False, True], ids=["silo by silo", "pooled"])
def test_counts_have_the_law_of_literal_shuffled_bits(
    by_bits: tuple[Coding, np.ndarray, np.ndarray], pooled: bool
) -> None:
    coding, *drawn = by_bits
    counts, prefixes = sampled(protocol(coding), SAMPLES, 4, pooled)
    for k in range(SYNCS):
        for entry in range(width(DIM)):
            verdict = same_counts_verdict(drawn[0][:, k, entry], counts[:, k, entry])
            assert verdict.accepted, verdict.detail
    difference = prefixes[: len(drawn[1])] - drawn[1]
    assert mean_verdict(difference, 0.0).accepted


def test_one_noise_bit_too_many_would_be_noticed() -> None:
    wrong, _ = literal(protocol(), 300, seed=5, noise_bits=1)
    counts, _ = sampled(protocol(), SAMPLES, 4)
    for entry in range(width(DIM)):
        assert not same_counts_verdict(wrong[:, -1, entry], counts[:, -1, entry]).accepted


def law(made: VectorSumProtocol) -> np.ndarray:
    """Covariance over syncs of the decoded prefixes, for each number: (width, syncs, syncs)."""
    spans = [(0, 1), (0, 2), (2, 3)]  # the batches of the p-sums of syncs 1, 2 and 3
    decoder = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]])
    batches, variances = users(), []
    for k, (first, last) in enumerate(spans, 1):
        node = made.node(k)
        points = np.concatenate([packed(batch, 1, True)[0, 0] for batch in batches[first:last]]) * 2.0**-BITS
        scaled = (points + 1) / node.units(DIM)
        rounding = ((scaled - np.floor(scaled)) * (1 - (scaled - np.floor(scaled)))).sum(axis=0)
        variances.append(node.units(DIM) ** 2 * (len(points) * node.noise_bits * 3 / 16 + rounding))
    return np.asarray(np.einsum("kn,nw,ln->wkl", decoder, np.array(variances), decoder))


@pytest.mark.parametrize("pooled", [False, True], ids=["silo by silo", "pooled"])
@pytest.mark.parametrize("coding", [TINY, None, EXACT], ids=["tiny", "theorem", "exact"])
def test_decoded_sums_are_unbiased_with_the_promised_noise(coding: Coding | None, pooled: bool) -> None:
    made = protocol(coding)
    _, prefixes = sampled(made, SAMPLES, 6, pooled)
    errors, promised = prefixes - true_prefixes(), law(made)
    deviations = np.sqrt(np.einsum("wkk->kw", promised))
    assert mean_verdict(errors, 0.0, deviations).accepted
    assert_std(errors, deviations)
    for entry in range(width(DIM)):
        assert covariance_verdict(errors[:, :, entry], promised[entry]).accepted
        assert not covariance_verdict(errors[:, :, entry], promised[entry] * 1.3**2).accepted
        assert not covariance_verdict(errors[:, :, entry], promised[entry] / 1.3**2).accepted
    if coding is None:  # the noise bits are all that counts, and the plan's noise law is theirs
        flat = made.scales.bias * math.sqrt(SILOS) * np.sqrt([1, 1, 2])
        np.testing.assert_allclose(deviations, np.broadcast_to(flat[:, None], deviations.shape), rtol=1e-3)


def test_roundings_of_one_user_are_drawn_anew_for_every_p_sum() -> None:
    counts, _ = sampled(protocol(), SAMPLES, 8)
    for entry in range(width(DIM)):
        assert abs(np.corrcoef(counts[:, 0, entry], counts[:, 1, entry])[0, 1]) < 6 / math.sqrt(SAMPLES)


def test_counts_stay_within_the_bits_there_are() -> None:
    made = protocol()
    noise = SimulatedNoise(np.random.default_rng(0))
    state = made.init((500, SILOS))
    for k, batch in enumerate(users(), 1):
        state, (counts,) = made.release(state, made.collect(state, packed(batch, 500, False), noise), noise)
        node = made.node(k)
        assert counts.min() >= 0
        assert counts.max() <= node.users // SILOS * (node.grid + node.noise_bits)
        assert sum(array.size for array in state.memory) == 500 * SILOS * made.tree.levels * width(DIM)


def test_parameters_are_the_papers() -> None:
    plan = Plan(3, 60, 4, Privacy(2.0, 0.05), "vector-sum", "tree", every(5), calibration="paper")
    made = plan.protocol
    assert isinstance(made, VectorSumProtocol)
    epsilon, delta = advanced_composition_share(1.0, 0.025, 4)  # half a stream, over 1 + floor(log2 12) p-sums
    spans = {1: 1, 2: 2, 3: 1, 4: 4, 8: 8, 12: 4}
    for k, batches in spans.items():
        node = made.node(k)
        assert node.users == 3 * 5 * batches
        as_printed = paper_parameters(node.users, 4, epsilon, delta)
        assert (node.grid, node.span) == (as_printed.g, 2.0)
        factor = 24e4 * math.log(4 * 17 / delta) ** 2 / (epsilon**2 * node.users)
        assert node.noise_bits == math.ceil(factor * node.grid**2)  # for the g that is used, rounded up
        assert node.noise_bits >= as_printed.b
    entered = {batch: sorted(made.nodes_of(batch)) for batch in (1, 8, 9, 12)}
    assert entered == {1: [0, 1, 2, 3], 8: [3], 9: [0, 1, 2], 12: [2]}


def test_the_published_simulation_samples_a_cut_b_and_subtracts_it_whole() -> None:
    made = protocol(PRINTED)
    _, prefixes = sampled(made, SAMPLES, 6)
    nodes, errors = [made.node(k) for k in (1, 2, 3)], prefixes - true_prefixes()
    assert [node.unit for node in nodes] == [1 / node.grid for node in nodes]  # as if the range were L
    assert [node.noise_bits for node in nodes] == [int(node.subtracted) for node in nodes]
    short = np.array([(node.subtracted - node.noise_bits) * node.users * node.unit / 4 for node in nodes])
    shifts = -short @ np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]])  # sync 3 adds the p-sum of sync 2 to its own
    deviations = np.sqrt(np.einsum("wkk->kw", law(made)))
    assert mean_verdict(errors, np.broadcast_to(shifts[:, None], deviations.shape), deviations).accepted
    assert not mean_verdict(errors, 0.0, deviations).accepted
    assert_std(errors - shifts[:, None], deviations)


@pytest.mark.parametrize(("epsilon", "std"), [(0.2, 411_000), (1.0, 82_200), (5.0, 16_400)])
def test_noise_of_a_p_sum_at_the_papers_instance(epsilon: float, std: float) -> None:
    plan = Plan(100, 10_000, 10, Privacy(epsilon, 0.1), "vector-sum", "tree", every(25), calibration="paper")
    made = plan.protocol
    assert isinstance(made, VectorSumProtocol)
    for k in (1, 2, 16, 256, 400):  # a counted bit stands for 2L/g; these were measured with L/g
        assert made.node(k).std == pytest.approx(2 * std, rel=0.01)
    assert plan.noise_std == pytest.approx(2 * std * math.sqrt(8), rel=0.01)  # the worst prefix adds up eight p-sums


def test_a_theorem_sized_run_decodes_and_fits(noise: SimulatedNoise) -> None:
    """Counts of 1e18 bits: nothing overflows, and the error is the noise."""
    plan = Plan(100, 10_000, 10, Privacy(0.2, 0.1), "vector-sum", "tree", every(2500), calibration="paper")
    made = plan.protocol.pooled()
    assert isinstance(made, VectorSumProtocol)
    batch = np.zeros((1500, 1, made.tree.levels, made.width), dtype=np.int64)  # what nobody's zeros would count
    prefix = composition.step(made, composition.init(made, (1500,)), batch, noise).prefix
    assert_std(prefix + made.node(1).users, made.node(1).std)
    bias, covariance = unpack(prefix, 10)
    assert np.isfinite(bias).all()
    assert np.isfinite(covariance).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mechanism": "toeplitz"}, "mechanism must be 'tree' for trust 'vector-sum'"),
        ({"calibration": "literature"}, "calibration must be 'paper' or 'published' or 'exact' for trust 'vector-sum'"),
        ({"privacy": Privacy(1.0, 0.1, participations=2)}, "participations must be 1 for trust 'vector-sum'"),
        ({"privacy": Privacy(1.0, 0.1, silos_per_user=2)}, "participations must be 1 for trust 'vector-sum'"),
        ({"privacy": Privacy(500.0, 0.1)}, r"epsilon must be at most \d+(\.\d+)? for trust 'vector-sum'"),
        ({"privacy": Privacy(1e-6, 0.1)}, "epsilon must be larger for trust 'vector-sum'"),
        ({"schedule": adaptive(2.0)}, "schedule must be public for trust 'vector-sum'"),
        ({"schedule": adaptive(2.0, private=True)}, "schedule must be public for trust 'vector-sum'"),
        ({"schedule": clock(60.0)}, "schedule must count rounds, not time, for trust 'vector-sum'"),
        ({"schedule": clock(60.0, 1.5)}, "schedule must count rounds, not time, for trust 'vector-sum'"),
    ],
)
def test_bad_input(fields: dict[str, object], message: str) -> None:
    good = Plan(10, 100, 3, Privacy(1.0, 0.1), "vector-sum", "tree", every(25), calibration="paper")
    with pytest.raises(ValueError, match=f"^{message}") as error:
        good.changed(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("users", "dim", "grid"), [(1, 2, 4), (4, 4, 4), (5, 4, 5), (3, 5, 5), (100, 9, 20)])
def test_the_grid_of_the_appendix(users: int, dim: int, grid: int) -> None:
    """g = max(2 sqrt n, d, 4), rounded up."""
    assert TINY.node(0, users, dim).grid == grid


@pytest.mark.parametrize("batch", [2, 8])
def test_counts_that_could_wrap_around_are_refused(batch: int) -> None:
    """The noise bits of all users of the largest p-sum, of which there are as 1 / epsilon^2: at most 2^62."""

    def plan(epsilon: float) -> Plan:
        return Plan(4, 8, DIM, Privacy(epsilon, 1e-5), "vector-sum", "tree", every(batch), calibration="paper", bits=10)

    made = plan(1.0).protocol
    assert isinstance(made, VectorSumProtocol)
    most = max(node.users * node.noise_bits for node in map(made.node, range(1, made.encoder.size + 1)))
    edge = math.sqrt(most / 2**62)
    assert plan(1.01 * edge).guarantee.promised
    with pytest.raises(
        ArgumentError, match=r"^epsilon must be larger for trust 'vector-sum': .* overflow 64-bit counts"
    ):
        plan(0.99 * edge)


class Rounding(SimulatedNoise):
    """Rounds to the nearest and adds no bits."""

    def rounded_total(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(np.rint(values).sum(axis=-2), dtype=np.int64)

    def binomial(self, trials: int, chance: float, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


def test_a_point_is_counted_in_its_own_p_sums_and_in_no_later_one() -> None:
    """Eight syncs, so that every level but the top is used again: what was released must be gone from it."""
    made = Plan(2, 16, DIM, Privacy(1.0, 1e-5), "vector-sum", "tree", every(2), calibration="paper").protocol
    assert isinstance(made, VectorSumProtocol)
    noise, state = Rounding(np.random.default_rng(0)), made.init()
    for k in range(1, 9):
        batch = made.collect(state, np.zeros((2, made.width), dtype=np.int64), noise)
        state, (counts,) = made.release(state, batch, noise)
        node = made.node(k)
        users = 2 * (k & -k)  # of one silo: two per batch
        assert counts.tolist() == [users * round(1 / node.unit)] * made.width


@pytest.mark.parametrize("batch", [5, 20])
@pytest.mark.parametrize("delta", [1e-5, 0.05])
def test_against_another_silo_something_is_said_just_as_far_as_the_theorem_reaches(batch: int, delta: float) -> None:
    """Advanced composition over the p-sums of one stream, at half of delta, ends at an epsilon that is found here; the
    other silo of three faces sqrt(3/2) times the plan's."""
    levels, log = (20 // batch).bit_length(), math.log(4 / delta)

    def excess(half: float) -> float:
        share = half / (2 * math.sqrt(2 * levels * log))
        return half / 2 + levels * share * math.expm1(share) - half

    edge = 2 * float(brentq(excess, 1e-3, 1e3))
    for factor, said in ((0.999, True), (1.001, False)):
        epsilon = factor * edge / math.sqrt(1.5)
        plan = Plan(3, 20, 2, Privacy(epsilon, delta), "vector-sum", "tree", every(batch), calibration="paper")
        nothing = "Nothing is promised against another silo" in plan.guarantee.statement
        assert nothing is not said
        if said:
            printed = re.search(r"which knows its own noise, it is \((\S+),", plan.guarantee.statement)
            assert printed is not None
            assert factor * edge * (1 - 1e-9) <= float(printed[1]) <= factor * edge * 1.001
