"""Adversaries score what they see by its log-likelihood ratio: compared with densities, and with what noise allows."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import norm

from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition, trust
from fedbandit.protocol.adversaries import (
    Adversary,
    Moment,
    SeesMessages,
    gaussian_residuals,
    gaussian_score,
    place_residuals,
    summed,
    uniform_residuals,
)
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.trusts.secure_sum import SeesShares, SeesTotal
from fedbandit.protocol.trusts.shuffle import SeesShuffled
from fedbandit.protocol.trusts.silo import SeesPrefixSums
from fedbandit.protocol.trusts.vector_sum import SeesCounts, VectorSumProtocol
from fedbandit.schedule import every
from tests.statistical import assert_std, mean_verdict

SILOS, BATCH, SYNCS, DIM, BITS = 3, 2, 3, 2, 20
TRIALS = 1500


def plan(name: str, mechanism: str = "tree", **fields: object) -> Plan:
    privacy = None if name == "none" else Privacy(1.0, 1e-3)
    return Plan(SILOS, BATCH * SYNCS, DIM, privacy, name, mechanism, every(BATCH), bits=BITS, **fields)  # type: ignore[arg-type]


PLANS = {
    "none": plan("none"),
    "local": plan("local", "batches"),
    "silo": plan("silo", "toeplitz"),
    "P_alt": plan("silo", decode_at="silo"),
    "shuffle": plan("shuffle", calibration="published"),
    "vector-sum": plan("vector-sum", calibration="published"),
    "secure-sum": plan("secure-sum", "toeplitz"),
    "secure-sum, two colluding": plan("secure-sum", colluding=2),
    "secure-sum, nobody colluding": plan("secure-sum", colluding=0),
    "central": plan("central"),
    "shuffled-users": plan("shuffled-users", "batches"),
    "public-contexts": plan("public-contexts"),
}


def batches(world: int) -> np.ndarray:
    """Batch sums (SYNCS, SILOS, width) on the grid: in world 1, the first silo's first batch is another one."""
    sums = np.zeros((SYNCS, SILOS, 5), dtype=np.int64)
    sums[:] = np.array([1, 2, 3, 1, 2]) * 2**BITS // 4
    if world == 1:
        sums[0, 0] += np.array([8, -4, 12, 4, -8]) * 2**BITS
    return sums


class Game(NamedTuple):
    """Every sync as adversaries see it, in one world."""

    protocol: Protocol
    moments: list[Moment]


def play(made: Plan, world: int, trials: int = TRIALS, seed: int = 2) -> Game:
    protocol, noise = made.protocol, SimulatedNoise(np.random.default_rng(seed))
    state = composition.init(protocol, (trials,))
    exact = [protocol.encoder.init((1, SILOS, 5)) for _ in range(2)]
    sent: list[Message] = []
    moments = []
    for sync in range(SYNCS):
        batch = np.broadcast_to(batches(world)[sync], (trials, SILOS, 5))
        batch = protocol.privatise(batch, BATCH, noise)
        state, transcript = composition.send(protocol, state, batch, noise)
        sent.append(transcript.sent)
        expected = []
        for other in range(2):
            exact[other], release = protocol.encoder.step(exact[other], batches(other)[sync][None])
            expected.append(release)
        moments.append(Moment(sync, BATCH, (expected[0], expected[1]), tuple(sent), transcript.held))
    return Game(protocol, moments)


def scores(adversary: Adversary, game: Game) -> np.ndarray:
    """Over the whole transcript, (trials,)."""
    each = [np.broadcast_to(adversary.score(game.protocol, moment), (TRIALS,)) for moment in game.moments]
    return np.asarray(np.sum(each, axis=0))


def log_density(observed: np.ndarray, expected: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum(norm.logpdf(observed, expected, scales), axis=(-2, -1)))


def test_a_gaussian_score_is_the_difference_of_log_densities() -> None:
    rng = np.random.default_rng(0)
    scales = rng.uniform(1, 9, 4)
    low, high = rng.integers(-20, 20, (2, 1, 2, 4))
    observed = rng.integers(-20, 20, (50, 2, 4))
    wanted = log_density(observed, high, scales) - log_density(observed, low, scales)
    np.testing.assert_allclose(gaussian_score(observed, (low, high), scales), wanted)
    by_row = gaussian_score(observed, (low, high), scales, axes=(-1,))
    np.testing.assert_allclose(np.sum(by_row, axis=-1), wanted)


def test_worlds_that_look_alike_score_nothing_and_numbers_without_noise_tell_all() -> None:
    same = np.ones((1, 2, 3), dtype=np.int64)
    assert gaussian_score(np.zeros((5, 2, 3)), (same, same), np.ones(3)) == 0.0
    low, high = np.zeros((1, 1, 1), dtype=np.int64), np.full((1, 1, 1), 10)
    assert np.all(gaussian_score(np.full((5, 1, 1), 10), (low, high), np.zeros(1)) > 100)
    assert np.all(gaussian_score(np.zeros((5, 1, 1)), (low, high), np.zeros(1)) < -100)


def test_sums_over_silos() -> None:
    low, high = summed((np.ones((4, 3, 2), dtype=np.int64), np.full((1, 3, 2), 2)))
    assert low.shape == (4, 1, 2)
    assert (low == 3).all()
    assert (high == 6).all()


@pytest.mark.parametrize("name", PLANS)
def test_every_protocol_names_whom_its_guarantee_is_against(name: str) -> None:
    adversaries = PLANS[name].protocol.adversaries()
    names = [adversary.name for adversary in adversaries]
    assert len(set(names)) == len(names) >= 1
    assert all(adversary.bound in ("gdp", "dp") for adversary in adversaries)
    known = {
        "none": ["everybody"],
        "local": ["everybody, the silo included"],
        "silo": ["everybody outside the silo"],
        "P_alt": ["everybody outside the silo"],
        "shuffle": ["the analyzer behind the mixer", "the analyzer together with the mixer"],
        "vector-sum": ["the analyzer behind the mixer"],
        "secure-sum": [
            "the analyzer",
            "the analyzer with 1 colluding silo",
            "the mixer",
            "the analyzer, by its shares alone",
        ],
        "secure-sum, two colluding": [
            "the analyzer",
            "the analyzer with 2 colluding silos",
            "the mixer",
            "the analyzer, by its shares alone",
        ],
        "secure-sum, nobody colluding": ["the analyzer", "the mixer", "the analyzer, by its shares alone"],
        "central": ["everybody but the analyzer"],
        "shuffled-users": ["the analyzer behind the mixer", "the analyzer together with the mixer"],
        "public-contexts": ["everybody"],
    }
    assert names == known[name]
    assert [a.remembers for a in adversaries] == [name == "P_alt"] * len(adversaries)


def test_every_trust_model_is_covered() -> None:
    assert {made.trust for made in PLANS.values()} == set(trust.names())


def seen_scales(made: Plan, adversary: Adversary) -> np.ndarray:
    """Deviation of the noise between the adversary and the first silo's release, in release units."""
    own = made.protocol.scales.packed(DIM) * 2.0**made.protocol.release_bits
    if made.trust in ("local", "shuffled-users"):
        return own * math.sqrt(BATCH)
    if isinstance(adversary, SeesTotal):
        return own * math.sqrt(SILOS - adversary.colluding)
    return own


GAUSSIAN = [
    (name, adversary)
    for name in ("local", "silo", "P_alt", "shuffle", "secure-sum", "secure-sum, two colluding", "central")
    for adversary in PLANS[name].protocol.adversaries()
    if adversary.bound == "gdp" and not isinstance(adversary, SeesShares)
]


@pytest.mark.parametrize("world", [0, 1])
@pytest.mark.parametrize(("name", "adversary"), GAUSSIAN, ids=str)
def test_scores_have_the_law_of_the_best_test_there_is(name: str, adversary: Adversary, world: int) -> None:
    """N(-+ mu^2 / 2, mu^2), mu the length of what moved in units of the noise: neither better nor worse."""
    made = PLANS[name]
    moved = np.tensordot(made.encoder.coefficients, batches(1)[:, 0] - batches(0)[:, 0], axes=1)
    moved = moved * 2.0**made.encoder.fraction_bits
    mu = float(np.linalg.norm(moved / seen_scales(made, adversary)))
    found = scores(adversary, play(made, world))
    centre = (mu**2 / 2) * (1 if world else -1)
    assert_std((found - centre)[:, None], mu)
    assert mean_verdict(found[:, None], centre, mu).accepted
    assert not mean_verdict(found[:, None], -centre, mu).accepted


@pytest.mark.parametrize("name", [name for name, made in PLANS.items() if made.trusting.separate])
def test_where_silos_are_separate_the_others_tell_nothing_of_one(name: str) -> None:
    game = play(PLANS[name], 1)
    for adversary in game.protocol.adversaries():
        for moment in game.moments:
            others = [tuple(array.copy() for array in message) for message in moment.sent]
            for message in others:
                for array in message:
                    array[:, 1:] += 12345
            elsewhere = moment._replace(sent=others)
            np.testing.assert_array_equal(
                adversary.score(game.protocol, moment), adversary.score(game.protocol, elsewhere)
            )


def test_without_privacy_the_worlds_are_told_apart_each_time() -> None:
    for world in (0, 1):
        found = scores(PLANS["none"].protocol.adversaries()[0], play(PLANS["none"], world))
        assert ((found > 0) == (world == 1)).all()


def test_prefix_sums_tell_what_the_releases_behind_them_tell() -> None:
    decoded, released = play(PLANS["P_alt"], 1), play(plan("silo"), 1)
    for one, other in zip(decoded.moments, released.moments, strict=True):
        np.testing.assert_allclose(
            SeesPrefixSums().score(decoded.protocol, one), SeesMessages().score(released.protocol, other)
        )


def test_two_copies_of_a_release_tell_more_than_one() -> None:
    game = play(PLANS["silo"], 1)
    one = game.moments[0]
    twice = one._replace(sent=[(*one.sent[0], *one.sent[0])])
    score = np.asarray(SeesMessages().score(game.protocol, one))
    np.testing.assert_allclose(np.asarray(SeesMessages().score(game.protocol, twice)), 2 * score)


@pytest.mark.parametrize("part", [0, 1])
def test_one_share_tells_nothing(part: int) -> None:
    """Above zero in about half of the trials, in one world as in the other."""
    shares = SeesShares("somebody", part)
    for world in (0, 1):
        first = play(PLANS["secure-sum"], world).moments[0]
        above = np.asarray(shares.score(PLANS["secure-sum"].protocol, first)) > 0
        assert abs(above.mean() - 0.5) < 6 * 0.5 / math.sqrt(TRIALS)


def test_shares_that_hide_nothing_would_be_noticed() -> None:
    game = play(PLANS["secure-sum"], 1)
    one = game.moments[0]
    bare = np.asarray(sum(one.sent[0]))  # both shares together are the release
    caught = SeesShares("somebody", 0).score(game.protocol, one._replace(sent=[(bare, bare)]))
    own = SeesMessages().score(game.protocol, one._replace(sent=[(bare.view(np.int64),)]))
    np.testing.assert_allclose(caught, own)


def test_unlabelled_releases_are_scored_as_a_mixture_over_their_senders() -> None:
    game = play(PLANS["shuffle"], 1, trials=20)
    protocol = game.protocol
    for moment in game.moments:
        scales = protocol.drawn_scales
        logs = []
        for expected in moment.expected:
            senders = []
            for place in range(SILOS):  # the first silo's message is at this place, the others are alike
                means = np.repeat(expected[:, 1:2], SILOS, axis=1).astype(float)
                means[:, place] = expected[:, 0]
                senders.append(log_density(moment.held[0], means, scales))
            logs.append(np.logaddexp.reduce(senders, axis=0))
        np.testing.assert_allclose(SeesShuffled().score(protocol, moment), logs[1] - logs[0], rtol=1e-6, atol=1e-8)


def test_of_a_user_of_several_silos_each_may_be_behind_any_release() -> None:
    """Silos 0 and 2 of four differ between the worlds, each in one number alone; the others are alike."""
    protocol = play(PLANS["shuffle"], 1, trials=1).protocol
    scales, generator = protocol.drawn_scales, np.random.default_rng(3)
    worlds = np.tile(generator.integers(-50, 50, protocol.width), (2, 1, 4, 1))
    step = np.rint(scales).astype(np.int64)
    worlds[1, 0, 0, 0] += step[0]
    worlds[0, 0, 2, 1] -= 2 * step[1]
    held = worlds[1] + np.rint(generator.normal(size=(20, 4, protocol.width)) * scales).astype(np.int64)
    moment = Moment(0, BATCH, (worlds[0], worlds[1]), [(held,)], (held,))
    wanted = np.zeros(20)
    for silo in (0, 2):
        for sign, expected in ((-1, worlds[0]), (1, worlds[1])):
            senders = []
            for place in range(4):
                means = np.repeat(expected[:, 3:], 4, axis=1).astype(float)
                means[:, place] = expected[:, silo]
                senders.append(log_density(held, means, scales))
            wanted += sign * np.logaddexp.reduce(senders, axis=0)
    np.testing.assert_allclose(SeesShuffled().score(protocol, moment), wanted, rtol=1e-6, atol=1e-8)


def test_counts_are_scored_by_mean_and_variance_of_their_binomials() -> None:
    game = play_counts()
    protocol = game.protocol
    assert isinstance(protocol, VectorSumProtocol)
    (moment,) = game.moments
    node = protocol.node(1)
    trials = node.users * node.noise_bits
    deviation = math.sqrt(trials * 3 / 16)
    logs = []
    for expected in moment.expected:  # numbers shifted by L = 1 count on the grid, plus a quarter of the noise bits
        values = expected.sum(axis=1, keepdims=True) * 2.0**-BITS + node.users
        logs.append(log_density(moment.held[0], values / node.unit + trials / 4, np.full(5, deviation)))
    wanted = logs[1] - logs[0]
    np.testing.assert_allclose(SeesCounts().score(protocol, moment), wanted, rtol=1e-6, atol=1e-9)


def play_counts() -> Game:
    """The first sync of P_vec, all users alike but one in world 1, which is played."""
    protocol, noise = PLANS["vector-sum"].protocol, SimulatedNoise(np.random.default_rng(1))
    users = np.zeros((2, 1, SILOS, BATCH, 5), dtype=np.int64)
    users[:] = np.array([1, -2, 3, 1, 2]) * 2**BITS // 4
    users[1, 0, 0, 0] = np.array([-3, 2, 1, 0, 3]) * 2**BITS // 4
    state = composition.init(protocol, (TRIALS,))
    points = np.broadcast_to(users[1], (TRIALS, SILOS, BATCH, 5))
    _, transcript = composition.send(protocol, state, protocol.collect(state.silos, points, noise), noise)
    expected = users.sum(axis=-2)
    return Game(protocol, [Moment(0, BATCH, (expected[0], expected[1]), [transcript.sent], transcript.held)])


ORDER = "order of the shuffled messages"
STREAMS: dict[str, set[str]] = {  # whose noise is there to be looked at, all adversaries together
    "none": set(),
    "local": {"noise that everybody, the silo included sees"},
    "silo": {"noise that everybody outside the silo sees"},
    "P_alt": {"noise that everybody outside the silo sees"},
    "shuffle": {"noise that the analyzer together with the mixer sees", ORDER},
    "central": {"noise of the analyzer"},
    "shuffled-users": {"noise that the analyzer together with the mixer sees", ORDER},
    "public-contexts": {"noise that everybody sees"},
}
HOLDERS = ("shares of the mixer", "shares of the analyzer, by its shares alone")
SHARED = {"noise of the total", "noise of the silos", *HOLDERS, *(f"{holder}, low bits" for holder in HOLDERS)}


@pytest.mark.parametrize("name", sorted(set(PLANS) - {"vector-sum"}))
@pytest.mark.parametrize("world", [0, 1])
def test_what_is_left_of_a_sound_protocol_is_standard_noise(name: str, world: int) -> None:
    """Entry by entry and sync by sync, to 5 standard errors of a variance; in the other world's units it is not."""
    game = play(PLANS[name], world)
    met = set()
    for moment in game.moments:
        for adversary in game.protocol.adversaries():
            for residual in adversary.residuals(game.protocol, moment, world):
                met.add(residual.name)
                squares = (residual.values**2).mean(axis=(0, 1))
                error = math.sqrt(2 / math.prod(residual.values.shape[:2]))
                assert np.abs(squares - 1).max() < 5 * error, (residual.name, moment.sync)
                assert len(residual.values) == TRIALS
    assert met == STREAMS.get(name, SHARED)


def test_where_nobody_else_sees_the_messages_their_noise_is_tested_behind_the_mixer() -> None:
    game = play(PLANS["shuffle"], 0, trials=50)
    _, together = game.protocol.adversaries()
    (alone,) = replace(game.protocol, needs_mixer=True).adversaries()  # type: ignore[call-arg]
    for moment in game.moments:
        order, behind = alone.residuals(game.protocol, moment, 0)
        (seen,) = together.residuals(game.protocol, moment, 0)
        assert (order.name, behind.name) == (ORDER, "noise behind the mixer")
        assert np.array_equal(behind.values, seen.values)


@pytest.mark.parametrize("senders", [2, 3, 6, 7])
def test_an_order_is_told_by_the_places_of_some_messages(senders: int) -> None:
    """Each place counts among those that are left, so that uniformly random orders give independent uniform numbers."""
    rng, scales = np.random.default_rng(3), np.array([40.0, 30.0])
    followed = {2: [0], 3: [0, 2], 6: [0, 1, 3, 5], 7: [0, 2, 4, 6]}[senders]
    orders = np.array(list(permutations(range(senders))))
    sent = np.rint(rng.standard_normal((len(orders), senders, 2)) * scales).astype(np.int64)
    sent[..., 0] += 1000 * np.arange(senders)  # no two messages are alike
    held = np.take_along_axis(sent, orders[..., None], axis=1)
    (told,) = place_residuals("order", sent, held, scales)
    assert told.values.shape == (len(orders), 1, len(followed))
    uniform, between = norm.cdf(told.values[:, 0]), []
    for found, order in zip(uniform, orders.tolist(), strict=True):
        left = list(range(senders))
        for number, one in zip(found.tolist(), followed, strict=True):
            place = left.index(order.index(one))
            assert place - 1e-9 <= number * len(left) <= place + 1 + 1e-9
            between.append(number * len(left) - place)
            left.pop(place)
    if len(between) > 1_000:  # uniform between two places
        assert np.mean(between) == pytest.approx(0.5, abs=5 * math.sqrt(1 / 12 / len(between)))
        assert np.var(between) == pytest.approx(1 / 12, rel=0.1)
    assert told.coincidence == pytest.approx(
        1 / math.prod(2 * math.sqrt(math.pi) * 50 * (senders - i) for i in range(len(followed)))
    )


def test_one_message_has_no_order() -> None:
    one = np.ones((5, 1, 2), dtype=np.int64)
    assert place_residuals("order", one, one, np.ones(2)) == ()


def test_the_counts_of_each_silo_have_their_own_noise() -> None:
    """In both worlds' units: standard noise in the world that was played, and not centred in the other."""
    game = play_counts()
    (moment,) = game.moments
    total, each = SeesCounts().residuals(game.protocol, moment, 1)
    assert (total.values.shape, each.values.shape) == ((TRIALS, 1, 5), (TRIALS, SILOS, 5))
    for residual in (total, each):
        assert np.abs(residual.values.mean(axis=0)).max() < 5 / math.sqrt(TRIALS)
        assert np.abs((residual.values**2).mean(axis=0) - 1).max() < 0.2
    _, other = SeesCounts().residuals(game.protocol, moment, 0)
    moved = np.abs(other.values.mean(axis=0)).max(axis=-1)
    assert moved[0] > 5 / math.sqrt(TRIALS) > moved[1:].max()


def test_each_holder_of_shares_looks_at_its_own() -> None:
    game = play(PLANS["secure-sum"], 0, trials=50)
    mixer, analyzer = (one for one in game.protocol.adversaries() if isinstance(one, SeesShares))
    assert (mixer.part, analyzer.part) == (0, 1)
    for moment in game.moments:
        for one in (mixer, analyzer):
            words = moment.sent[-1][one.part]
            high = one.residuals(game.protocol, moment, 0)[0].values
            assert np.array_equal(norm.cdf(high) > 0.5, words >= np.uint64(2**63))


def test_what_is_left_is_counted_in_the_noise_that_is_claimed() -> None:
    observed, expected, scales = np.array([[[7, 5, -2]]]), np.array([[[1, 5, 6]]]), np.array([2.0, 0.0, 4.0])
    (left,) = gaussian_residuals("noise", observed, expected, scales)
    assert not left.uniform
    assert (left.name, left.values.tolist(), left.uniform) == ("noise", [[[3.0, -2.0]]], False)
    agree = 1.0  # two whole numbers with this noise: the sum of their squared chances
    for scale in (2.0, 4.0):
        edges = np.arange(-50, 51) + 0.5
        agree *= float(np.sum(np.diff(norm.cdf(edges / scale)) ** 2))
    assert left.coincidence == pytest.approx(agree, rel=0.02)
    assert gaussian_residuals("none", observed, expected, np.zeros(3)) == ()
    (small,) = gaussian_residuals("noise", observed, expected, np.array([0.5, 0.0, 1.0]))  # noise, however little
    assert small.values.tolist() == [[[12.0, -8.0]]]


def test_numbers_without_noise_are_known_to_half_a_unit() -> None:
    low, high = np.zeros((1, 1, 1), dtype=np.int64), np.full((1, 1, 1), 3)
    ratio = norm.logpdf(2, 3, 0.5) - norm.logpdf(2, 0, 0.5)
    for scale in (0.0, 0.1, 0.5):
        assert gaussian_score(np.full((1, 1, 1), 2), (low, high), np.array([scale])) == pytest.approx(ratio)


def test_words_become_the_gaussians_of_their_rank_by_either_end() -> None:
    words = np.array([[[0, 1, 2**63, 2**64 - 1, 3 * 2**61, 0x0102030405060708]]], dtype=np.uint64)
    high, low = uniform_residuals("share", words)
    assert high.uniform
    assert low.uniform
    assert (high.name, low.name, high.uniform, low.uniform) == ("share", "share, low bits", True, True)
    for side, order in ((high, "big"), (low, "little")):
        for word, value in zip(words.ravel().tolist(), side.values.ravel(), strict=True):
            bits = int.from_bytes(word.to_bytes(8, "big"), order)  # type: ignore[arg-type]
            assert value == pytest.approx(norm.ppf((bits // 2**11 + 0.5) / 2**53), rel=1e-9, abs=1e-15)
        assert math.isclose(side.coincidence, 0.5 ** (53 * 6))
