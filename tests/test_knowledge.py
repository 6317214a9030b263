"""Local knowledge weighs a silo's own raw data against what the others tell, each by its error."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.statistics import Scales, contributions, unpack
from fedbandit.knowledge import LocalKnowledge, OwnData, PublicModel, local_knowledge, nothing_public, public_model
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every

SILOS, DIM, VISITS, BATCH = 6, 5, 300, 20
SYNC = VISITS // BATCH - 1
ARMS = 6


def plan(epsilon: float, centre: float = 0.0) -> Plan:
    return Plan(SILOS, VISITS, DIM, Privacy(epsilon, 1e-5), schedule=every(BATCH), centre=centre)


class Played:
    """Visits to all silos, of which some are counted, and what the federation makes of these."""

    def __init__(self, made: Plan, share: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        direction = rng.normal(size=DIM - 1)
        self.theta = np.append(direction / np.linalg.norm(direction), 1.0) / np.sqrt(2)
        x = _features(rng, (SILOS, VISITS))
        y = (rng.random((SILOS, VISITS)) < x @ self.theta).astype(float)
        packed = contributions(x, y, made.bits, made.centre)
        self.sums: Integers = packed.sum(axis=1)
        self.released: Integers = (packed * (rng.random((SILOS, VISITS, 1)) < share)).sum(axis=1)
        self.squares = ((y - made.centre) ** 2).sum(axis=1)
        law = made.noise_law
        scales = Scales(law.bias[SYNC], law.diagonal[SYNC], law.off_diagonal[SYNC]).packed(DIM)
        prefix = self.released.sum(axis=0) * 2.0**-made.bits + rng.normal(size=scales.shape) * scales
        self.public = public_model(made, SYNC, prefix, VISITS)
        self.own = OwnData(self.sums, self.squares, np.full(SILOS, VISITS), self.released)
        self.asked = _features(rng, (500, ARMS))

    def lost(self, theta: Floats) -> float:
        """What choosing by an estimate loses."""
        means = self.asked @ self.theta
        chosen = np.argmax(self.asked @ theta, axis=-1)
        return float(np.mean(means.max(axis=-1) - means[np.arange(len(means)), chosen]))


def _features(rng: np.random.Generator, lead: tuple[int, ...]) -> Floats:
    free = rng.normal(size=(*lead, DIM - 1))
    free /= np.linalg.norm(free, axis=-1, keepdims=True)
    return np.asarray(np.concatenate([free, np.ones((*lead, 1))], axis=-1) / np.sqrt(2))


def _of(own: OwnData, silo: int) -> OwnData:
    return OwnData(own.sums[silo], own.squares[silo], own.visits[silo], own.released[silo])


def test_before_the_first_sync_a_silo_knows_its_own_data_and_nothing_else() -> None:
    made = plan(1.0)
    played = Played(made, 0.5, 0)
    known = local_knowledge(made, played.own, nothing_public(made))
    bias, covariance = unpack(np.asarray(played.sums * 2.0**-made.bits), DIM)
    np.testing.assert_array_equal(known.bias, bias)
    more = known.precision - covariance
    np.testing.assert_allclose(more, more[:, :1, :1] * np.eye(DIM), atol=1e-9)
    assert (more[:, 0, 0] >= 1.0).all()
    np.testing.assert_array_equal(known.visits, VISITS)


@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_without_noise_to_speak_of_all_silos_count_as_ones_own(centre: float) -> None:
    made = plan(1e5, centre)
    played = Played(made, 1.0, 1)
    known = local_knowledge(made, _of(played.own, 0), played.public)
    bias, covariance = unpack(np.asarray(played.sums.sum(axis=0) * 2.0**-made.bits), DIM)
    whole = np.linalg.solve(covariance + np.eye(DIM), bias)
    np.testing.assert_allclose(known.model(made).theta, whole, atol=0.01)
    assert known.visits == pytest.approx(SILOS * VISITS, rel=0.02)


def test_noise_that_drowns_the_data_is_worth_nothing() -> None:
    made = plan(0.001)
    played = Played(made, 1.0, 2)
    one = _of(played.own, 0)
    known, alone = local_knowledge(made, one, played.public), local_knowledge(made, one, nothing_public(made))
    np.testing.assert_allclose(known.model(made).theta, alone.model(made).theta, atol=1e-3)
    assert known.visits == pytest.approx(VISITS, rel=1e-2)


def test_what_a_silo_has_released_is_not_counted_twice() -> None:
    """More of its own data in the public sums, and as much more of its own part, is nothing new."""
    made = plan(1.0)
    played = Played(made, 0.5, 3)
    one, extra = _of(played.own, 0), played.sums[0] - played.released[0]
    later = public_model(made, SYNC, played.public.prefix + extra * 2.0**-made.bits, VISITS)
    before = local_knowledge(made, one, played.public)
    after = local_knowledge(made, one._replace(released=one.released + extra), later)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9)


def test_silos_side_by_side_are_silos_one_by_one() -> None:
    made = plan(2.0)
    played = Played(made, 0.5, 4)
    together = local_knowledge(made, played.own, played.public)
    for silo in range(SILOS):
        alone = local_knowledge(made, _of(played.own, silo), played.public)
        for left, right in zip(alone, together, strict=True):
            np.testing.assert_allclose(left, right[silo], rtol=1e-9)


@pytest.mark.parametrize(("epsilon", "share"), [(0.1, 0.5), (1.0, 0.1), (1.0, 0.5), (1.0, 1.0), (10.0, 0.5)])
def test_it_is_no_worse_than_either_of_its_sources(epsilon: float, share: float) -> None:
    """Greedy choices by the three estimates on the same visits: local loses no more than the better of the others."""
    made = plan(epsilon, centre=0.5)
    local, public, alone = [], [], []
    for seed in range(40):
        played = Played(made, share, seed)
        one = _of(played.own, 0)
        local.append(played.lost(local_knowledge(made, one, played.public).model(made).theta))
        alone.append(played.lost(local_knowledge(made, one, nothing_public(made)).model(made).theta))
        public.append(played.lost(played.public.model.theta))
    for other in (public, alone):
        worse = np.array(local) - np.array(other)
        assert worse.mean() < 2 * worse.std(ddof=1) / np.sqrt(len(worse))


def test_rewards_that_hardly_vary_make_a_silo_rely_on_itself() -> None:
    """The noise is the same, but own visits tell much more: the others' sums are worth less."""
    made = plan(1.0)
    played = Played(made, 1.0, 5)
    one = _of(played.own, 0)
    bias, covariance = unpack(np.asarray(one.sums * 2.0**-made.bits), DIM)
    theta = np.linalg.solve(covariance, bias)
    exact = one._replace(squares=np.asarray(theta @ covariance @ theta))
    worth = [float(local_knowledge(made, own, played.public).visits) - VISITS for own in (one, exact)]
    assert 0 < worth[1] < worth[0] / 3


@pytest.mark.filterwarnings("error")
def test_sums_that_look_exactly_like_ones_own_are_no_trouble() -> None:
    """No noise, or none by accident: nothing is divided by nothing."""
    for epsilon in (1.0, 1e5):
        made = plan(epsilon)
        played = Played(made, 1.0, 6)
        one = _of(played.own, 0)
        prefix = np.asarray((one.sums + one.sums) * 2.0**-made.bits)
        known = local_knowledge(made, one, public_model(made, SYNC, prefix, VISITS))
        assert np.isfinite(known.model(made).theta).all()
        nobody = OwnData(0 * one.sums, 0 * one.squares, 0 * one.visits, 0 * one.released)
        assert np.isfinite(local_knowledge(made, nobody, played.public).model(made).theta).all()


def test_neither_type_is_the_other() -> None:
    assert not issubclass(LocalKnowledge, PublicModel)
    assert not issubclass(PublicModel, LocalKnowledge)
    assert not set(PublicModel._fields) & set(OwnData._fields)
    assert not set(PublicModel._fields) & set(LocalKnowledge._fields)
