"""Shares: each alone is uniform whatever is shared, both together are the sum, also of negative and huge numbers."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta, gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.trusts.secure_sum import SecureSumProtocol, split
from fedbandit.schedule import every
from tests.statistical import ALPHA, Verdict

INT64 = st.integers(-(2**63), 2**63 - 1)


def source(seed: int = 0) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def uniform_verdict(words: np.ndarray) -> Verdict:
    """Chi-square over each of the eight bytes, all 256 values of it."""
    bytes_ = words.astype("<u8").reshape(-1, 1).view(np.uint8)  # (n, 8)
    counts = np.stack([np.bincount(column, minlength=256) for column in bytes_.T])
    statistic = ((counts - len(bytes_) / 256) ** 2 / (len(bytes_) / 256)).sum(axis=1)
    limit = chi2.isf(ALPHA / 8, 255)
    return Verdict(bool((statistic <= limit).all()), f"{statistic.max():.0f}, allowed {limit:.0f}")


@given(st.lists(INT64, min_size=1, max_size=20), st.integers(0, 2**32))
def test_two_shares_add_up_to_the_release_modulo_two_to_the_64(values: list[int], seed: int) -> None:
    release = np.array(values, dtype=np.int64)
    first, second = split(release, source(seed))
    assert first.dtype == second.dtype == np.uint64
    np.testing.assert_array_equal((first + second).view(np.int64), release)


@pytest.mark.parametrize("value", [0, 1, -1, 2**62, -(2**62), 123456789])
def test_each_share_alone_is_uniform_whatever_is_shared(value: int) -> None:
    release = np.full(100_000, value, dtype=np.int64)
    for share in split(release, source(3)):
        verdict = uniform_verdict(share)
        assert verdict.accepted, verdict.detail
    narrow = source(3).words((100_000,)) >> np.uint64(1)  # a mask of 63 bits
    assert not uniform_verdict(narrow).accepted
    assert not uniform_verdict(release.view(np.uint64) - narrow).accepted


def test_the_mixers_share_does_not_depend_on_the_data_at_all() -> None:
    data = np.random.default_rng(1).integers(-(2**60), 2**60, (2, 50))
    np.testing.assert_array_equal(split(data[0], source(9))[0], split(data[1], source(9))[0])


def test_a_silo_that_colludes_tells_the_mixer_no_more_than_the_analyzer() -> None:
    """The guarantee names both. With the models the mixer knows the sum, and with that silo the sum over the others.
    Whichever releases the others had to make that sum, draw by draw it sees the same."""
    rng = np.random.default_rng(2)
    honest, told = rng.integers(-(2**40), 2**40, (4, 50)), rng.integers(-(2**40), 2**40, 50)
    other = honest + np.array([[3], [-1], [-2], [0]])  # another world with the same sum
    views = []
    for releases in (honest, other):
        for_mixer, for_analyzer = split(np.vstack([releases, told]), source(4))
        total = for_mixer.sum(axis=0) + for_analyzer.sum(axis=0)
        views.append((for_mixer, total - told.view(np.uint64)))
    for first, second in zip(*views, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(views[0][1].view(np.int64), honest.sum(axis=0))


def test_the_analyzers_shares_are_independent_of_the_data() -> None:
    """Correlation of every bit of the share with every bit of the release: a 64 x 64 table of fair coins."""
    release = source(5).words((40_000,)).view(np.int64)
    share = split(release, source(6))[1]
    bits = [np.unpackbits(array.view(np.uint8).reshape(-1, 8), axis=1) * 2.0 - 1 for array in (share, release)]
    correlation = bits[0].T @ bits[1] / len(release)
    assert np.abs(correlation).max() < 6.0 / np.sqrt(len(release))  # 4096 of them, each of deviation 1/sqrt(n)
    unmasked = np.unpackbits((release + 1).view(np.uint8).reshape(-1, 8), axis=1) * 2.0 - 1
    assert np.abs(unmasked.T @ bits[1] / len(release)).max() > 0.9


def protocol(silos: int = 5, cohort: int | None = None, colluding: int | None = 0) -> SecureSumProtocol:
    budget = Privacy(1.0, 1e-3)
    plan = Plan(silos, 20, 2, budget, "secure-sum", "tree", every(10), cohort=cohort, colluding=colluding)
    assert isinstance(plan.protocol, SecureSumProtocol)
    return plan.protocol


def test_the_analyzer_adds_shares_of_negative_numbers_and_sees_no_single_silo(no_noise: SimulatedNoise) -> None:
    made = protocol()
    batch = np.random.default_rng(2).integers(-(2**50), 2**50, (7, 5, made.width))
    _, messages = made.release(made.init((7, 5)), batch, no_noise)
    held = made.passed_on(messages, no_noise)
    assert held[0].shape == (7, 1, made.width)  # the mixer passes on one total of its own
    assert held[1].shape == (7, 5, made.width)
    np.testing.assert_array_equal(made.total(held), batch.sum(axis=1))
    for_analyzer = held[1].view(np.int64)
    assert not (for_analyzer == batch).any()


def test_the_mixer_is_handed_its_own_shares_and_nothing_else() -> None:
    made = protocol()
    batch = np.random.default_rng(2).integers(-(2**50), 2**50, (5, made.width))
    _, (for_mixer, for_analyzer) = made.release(made.init((5,)), batch, source())
    (total,) = made.mix((for_mixer,), source())
    np.testing.assert_array_equal(total[0], for_mixer.sum(axis=0, dtype=np.uint64))
    held = made.passed_on((for_mixer, for_analyzer), source())
    np.testing.assert_array_equal(held[0], total)
    np.testing.assert_array_equal(held[1], for_analyzer)


def test_a_silo_that_drops_out_is_left_out(no_noise: SimulatedNoise) -> None:
    made = protocol()
    batch = np.random.default_rng(2).integers(-(2**50), 2**50, (5, made.width))
    _, messages = made.release(made.init((5,)), batch, no_noise)
    here = tuple(array[[0, 2, 4]] for array in messages)
    np.testing.assert_array_equal(made.total(made.passed_on(here, no_noise)), batch[[0, 2, 4]].sum(axis=0))


def test_no_absence_lets_anybody_move_the_sums_further_than_counted() -> None:
    """Every number goes the same way, so the entries of one message carry one unit of each batch, then of each draw.

    The noise of a sum is that of the silos in it; the worst mu^2 is compared with that of a silo that is always there.
    """
    syncs, silos = 16, 100
    made = Plan(silos, syncs, 2, Privacy(1.0, 1e-3), "secure-sum", schedule=every(1), colluding=0)
    matrix = made.encoder.coefficients
    drawn = [(np.rint(row * 2.0**30).astype(np.int64),) for row in np.hstack([matrix, np.eye(syncs)])]
    always = np.sum(matrix**2, axis=0).max() / silos
    drawn_patterns = (np.flatnonzero(coins).tolist() for coins in np.random.default_rng(4).random((20, syncs)) < 0.5)
    for present in (range(0, syncs, 2), range(0, syncs, 3), *drawn_patterns):
        arrived: dict[int, tuple[np.ndarray, ...]] = {}
        for sync in present:
            arrived[sync] = made.protocol.outgoing(drawn[: sync + 1], dict(arrived))
        data, own = np.split(np.array([message[0] for message in arrived.values()]) * 2.0**-30, 2, axis=1)
        covariance = (silos - 1) * np.eye(len(arrived)) + own @ own.T
        assert np.sum(data * np.linalg.solve(covariance, data), axis=0).max() <= always * (1 + 1e-9)


def test_noise_is_divided_over_the_fewest_honest_silos() -> None:
    everybody, few, colluding = protocol(), protocol(cohort=3), protocol(cohort=4, colluding=2)
    scales = [np.array(made.scales) for made in (everybody, few, colluding)]
    np.testing.assert_allclose(scales[1], scales[0] * np.sqrt(5 / 3))
    np.testing.assert_allclose(scales[2], scales[0] * np.sqrt(5 / 2))
    alone = Plan(5, 20, 2, Privacy(1.0, 1e-3), "silo", "tree", every(10)).protocol
    np.testing.assert_allclose(scales[0] * np.sqrt(5), alone.scales)


def test_the_weaker_promise_if_mixer_and_analyzer_collude_is_stated_and_right() -> None:
    plan = Plan(9, 20, 2, Privacy(1.0, 1e-3), "secure-sum", "tree", every(10))
    alone = float(str(plan.guarantee.statement).split("still gives (")[1].split(",")[0])
    mu = math.sqrt(8) / gaussian_sigma(1.0, 1e-3)  # 8 of 9 silos share the noise that the sum needs
    assert 0.99e-3 < gaussian_delta(mu, alone) <= 1e-3  # printed rounded up


TOO_FEW = (
    "{} must be more than {} for trust 'secure-sum' to hold against {} of the silos, got {}: {}, or use trust 'silo', "
    "where each silo's own noise is enough"
)


def test_bad_input() -> None:
    for fields, message in [
        ({"cohort": 0}, "cohort must be a whole number >= 1, got 0"),
        ({"cohort": 2.5}, "cohort must be a whole number >= 1, got 2.5"),
        ({"cohort": 6}, "cohort must lie between 1 and the 5 silos, got 6"),
        ({"colluding": -1}, "colluding must be a whole number >= 0, got -1"),
        ({"colluding": 5}, TOO_FEW.format("silos", 5, 5, 5, "let more take part")),
        ({"silos": 1, "colluding": None}, TOO_FEW.format("silos", 1, 1, 1, "let more take part")),
        ({"cohort": 2, "colluding": 3}, TOO_FEW.format("cohort", 3, 3, 2, "make it larger")),
    ]:
        with pytest.raises(ValueError) as error:
            protocol(**fields)  # type: ignore[arg-type]
        assert str(error.value) == message
    with pytest.raises(ValueError, match=r"^calibration must be 'exact' for trust 'secure-sum'"):
        Plan(5, 20, 2, Privacy(1.0, 1e-3), "secure-sum", "tree", every(10), calibration="paper")


def test_a_protocol_that_is_told_of_no_colluder_has_none() -> None:
    plan = Plan(4, 20, 2, Privacy(1.0, 1e-5), colluding=2)
    protocol = plan.protocol
    told = SecureSumProtocol(protocol.encoder, protocol.scales, 2, plan.bits, 4)
    names = ["the analyzer", "the mixer", "the analyzer, by its shares alone"]
    assert [one.name for one in told.adversaries()] == names
    assert [one.name for one in protocol.adversaries()] == [names[0], "the analyzer with 2 colluding silos", *names[1:]]


@pytest.mark.parametrize(("visits", "colluding"), [(1, 0), (2, 1), (3, 2)])
def test_both_mu_of_the_proof_with_and_without_a_mixer_that_keeps_to_itself(visits: int, colluding: int) -> None:
    """A sum moves by as many shifts as silos were visited; releases seen one by one by their root."""
    plan = Plan(
        6, 20, 2, Privacy(1.0, 1e-5, silos_per_user=visits), mechanism="tree", schedule=every(5), colluding=colluding
    )
    own = math.sqrt(plan.protocol.scales.diagonal**2 - 8 * 4.0**-20)  # without what the grid needs
    moved = math.sqrt(3) * (math.sqrt(4.5) + 2 * math.sqrt(6) * 2.0**-21)  # three levels of a tree over 4 releases
    printed = re.search(r"mu is then (\S+) instead of (\S+), which is an exact epsilon", str(plan.guarantee))
    assert printed is not None
    alone, together = map(float, printed.groups())
    assert alone == pytest.approx(moved * math.sqrt(visits) / own, abs=1e-5)
    assert together == pytest.approx(moved * visits / (own * math.sqrt(6 - colluding)), abs=1e-5)
    assert gaussian_delta(together, 1.0) == pytest.approx(1e-5, rel=1e-3)
