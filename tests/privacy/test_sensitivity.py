"""How far one user can move the statistics: the whole domain is searched for anything beyond the bounds."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import minimize

from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import (
    ADJACENCIES,
    Adjacency,
    Shift,
    bias_shift,
    covariance_shift,
    joint_shift,
    rounding_shift,
)
from fedbandit.protocol import mechanisms
from fedbandit.schedule import every

# ||x||, ||x'||, the angle between them, y, y'
BOX: list[tuple[float, float]] = [(0, 1), (0, 1), (0, 2 * np.pi), (0, 1), (0, 1)]
CORNERS = np.array(list(product((0, 1), (0, 1), np.linspace(0, 2 * np.pi, 49), (0, 1), (0, 1))))


def features(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and x' in the plane they span: (..., 5) to twice (..., 2)."""
    first, second, angle = points[..., 0], points[..., 1], points[..., 2]
    zero = np.zeros_like(first)
    return np.stack([first, zero], -1), second[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)


def moved(points: np.ndarray, centre: float, weights: tuple[float, float], adjacency: Adjacency) -> np.ndarray:
    """Length of the move of (bias, covariance), bias and Frobenius norm weighted, for points (..., 5) of the box."""
    x, other = features(points)
    y, other_y = points[..., 3] - centre, points[..., 4] - centre
    bias, matrix = x * y[..., None], x[..., :, None] * x[..., None, :]
    if adjacency == "replace-one":
        bias = bias - other * other_y[..., None]
        matrix = matrix - other[..., :, None] * other[..., None, :]
    return np.asarray(np.sqrt(weights[0] * (bias**2).sum(-1) + weights[1] * (matrix**2).sum((-2, -1))))


def largest(centre: float, weights: tuple[float, float], adjacency: Adjacency) -> float:
    """The largest move found anywhere: random points and corners, then the best of them climbed from."""
    rng = np.random.default_rng(3)
    low, high = np.array(BOX).T
    points = np.concatenate([rng.uniform(low, high, (50_000, 5)), CORNERS])
    values = moved(points, centre, weights, adjacency)
    best = float(values.max())

    def fallen(point: np.ndarray) -> float:
        return -float(moved(point, centre, weights, adjacency))

    for start in points[np.argsort(values)[-6:]]:
        climbed = minimize(fallen, start, bounds=BOX, method="L-BFGS-B")
        best = max(best, -float(climbed.fun))
    return best


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("centre", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("ratio", [0.05, 0.5, 1.0, 2.0, 2.5, 9.0])
def test_nothing_moves_further_than_the_joint_bound_and_something_reaches_it(
    ratio: float, centre: float, adjacency: Adjacency
) -> None:
    bound = joint_shift(adjacency, max(centre, 1 - centre), ratio)
    found = largest(centre, (ratio, 1.0), adjacency)
    assert found <= bound * (1 + 1e-9)
    assert found >= bound * (1 - 1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_each_stream_alone(adjacency: Adjacency) -> None:
    assert largest(0.0, (1.0, 0.0), adjacency) == pytest.approx(bias_shift(adjacency), rel=1e-6)
    assert largest(0.0, (0.0, 1.0), adjacency) == pytest.approx(covariance_shift(adjacency), rel=1e-6)


def test_the_numbers_of_the_usual_case() -> None:
    assert joint_shift("add-remove") == pytest.approx(np.sqrt(2))
    assert joint_shift("replace-one") == pytest.approx(np.sqrt(4.5))
    half = np.pi * 2 / 3  # cosine -1/2
    worst = np.array([1.0, 1.0, half, 1.0, 1.0])
    assert moved(worst, 0.0, (1.0, 1.0), "replace-one") == pytest.approx(np.sqrt(4.5))
    with pytest.raises(ValueError, match=r"^adjacency must be one of replace-one, add-remove; got 'both'"):
        joint_shift("both")  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("centre", "ratio"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.25), (0.5, 8.0)])
@pytest.mark.parametrize("mechanism", ["tree", "toeplitz", "batches", "blt"])
def test_the_noise_of_a_plan_hides_the_worst_user_exactly(
    mechanism: str, centre: float, ratio: float, adjacency: Adjacency
) -> None:
    """Every pair of users, in packed numbers, divided by each number's own noise: mu is reached and not passed."""
    privacy = Privacy(1.0, 1e-5, adjacency)
    plan = Plan(
        3, 90, 2, privacy, "silo", mechanism, every(10), centre=centre, ratio=ratio, bits=26
    )  # a fine grid, so that what rounding adds is invisible here
    rng = np.random.default_rng(5)
    low, high = np.array(BOX).T
    points = np.concatenate(
        [rng.uniform(low, high, (20_000, 5)), CORNERS, *[CORNERS * (1, 1, s, 1, 1) for s in (0.99, 0.97)]]
    )
    x, other = features(points)
    shift = contributions(x, points[:, 3], 26, centre).astype(float)
    if adjacency == "replace-one":
        shift -= contributions(other, points[:, 4], 26, centre)
    noisy_lengths = np.linalg.norm(shift * 2.0**-26 / plan.protocol.scales.packed(plan.dim), axis=1)
    mu = noisy_lengths.max() * np.linalg.norm(plan.encoder.coefficients, axis=0).max()
    budget = 1 / gaussian_sigma(1.0, 1e-5)
    assert mu <= budget
    assert mu >= budget * 0.998  # the grid of angles comes this close


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("bits", [2, 4])
def test_rounding_adds_no_more_than_counted(bits: int, ratio: float, adjacency: Adjacency) -> None:
    rng = np.random.default_rng(bits)
    angle, other_angle = rng.uniform(0, 2 * np.pi, (2, 300_000))
    norms, rewards = rng.uniform(0, 1.2, (2, 300_000)).clip(max=1), rng.uniform(0, 1.2, (2, 300_000)).clip(max=1)
    x = norms[0, :, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    other = norms[1, :, None] * np.stack([np.cos(other_angle), np.sin(other_angle)], -1)
    weights = np.array([ratio, ratio, 1.0, 2.0, 1.0])  # an off-diagonal entry counts twice in the Frobenius norm
    rounded = contributions(x, rewards[0], bits) * 2.0**-bits
    exact = np.concatenate([x * rewards[0, :, None], x[:, [0, 0, 1]] * x[:, [0, 1, 1]]], axis=1)
    error = np.sqrt(((rounded - exact) ** 2 @ weights).max())
    one_user = rounding_shift("add-remove", 2, bits, ratio)
    assert 0.6 * one_user < error <= one_user  # the entries are not free of each other, so it is not reached
    shift = rounded
    if adjacency == "replace-one":
        shift = rounded - contributions(other, rewards[1], bits) * 2.0**-bits
    reached = np.sqrt((shift**2 @ weights).max())
    assert reached <= joint_shift(adjacency, 1.0, ratio) + rounding_shift(adjacency, 2, bits, ratio)
    assert reached > joint_shift(adjacency, 1.0, ratio)  # rounding does move it: the bound without it is false


def test_rounding_of_a_wide_contribution_is_what_was_measured() -> None:
    assert rounding_shift("replace-one", 57, 20) == pytest.approx(np.sqrt(57 + 57**2) * 2.0**-20)
    assert rounding_shift("replace-one", 57, 20) < 6e-5
    assert Shift(2.0, 0.5, 3).total == 7.5


def packed(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Contributions of both users as vectors whose length is the joint norm: (..., 5) each."""
    weights = np.sqrt([1.0, 1.0, 1.0, 2.0, 1.0])
    x, other = features(points)
    return tuple(
        np.concatenate([u * y[:, None], u[:, [0, 0, 1]] * u[:, [0, 1, 1]]], axis=1) * weights
        for u, y in ((x, points[:, 3]), (other, points[:, 4]))
    )  # type: ignore[return-value]


@pytest.mark.parametrize("mechanism", ["tree", "toeplitz", "batches", "blt"])
def test_a_late_reward_costs_nothing_extra(mechanism: str) -> None:
    """A user whose reward would also come in another batch: the releases move no further than inside one batch."""
    encoder = mechanisms.encoder(mechanism, 12)
    rng = np.random.default_rng(11)
    low, high = np.array(BOX).T
    points = np.concatenate([rng.uniform(low, high, (4_000, 5)), CORNERS])
    u, v = packed(points)
    inner = (u * v).sum(1)
    assert inner.min() >= -0.25 - 1e-12
    assert inner.min() == pytest.approx(-0.25, abs=0.01)
    columns = encoder.coefficients.T
    bound = 4.5 * encoder.column_norm**2
    worst = 0.0
    for j, k in combinations(range(encoder.size), 2):
        squared = (
            (u**2).sum(1) * (columns[j] ** 2).sum()
            + (v**2).sum(1) * (columns[k] ** 2).sum()
            - 2 * columns[j] @ columns[k] * inner
        )
        worst = max(worst, float(squared.max()))
    assert worst <= bound * (1 + 1e-12)
    assert worst > 0.8 * bound  # two contributions in two batches are almost as bad as one replaced in its batch


@pytest.mark.parametrize("mechanism", ["tree", "toeplitz", "blt"])
def test_several_participations_are_worst_in_one_batch(mechanism: str) -> None:
    """Three rounds of one user, in any batches, each replaced in the worst way found: never beyond three shifts."""
    encoder = mechanisms.encoder(mechanism, 6)
    rng = np.random.default_rng(2)
    low, high = np.array(BOX).T
    u, v = packed(np.concatenate([rng.uniform(low, high, (2_000, 5)), CORNERS]))
    shifts = u - v
    strongest = shifts[np.argsort(np.linalg.norm(shifts, axis=1))[-200:]]
    bound = Shift(joint_shift("replace-one"), 0.0, 3).total * encoder.column_norm
    reached = 0.0
    for batches in product(range(6), repeat=3):
        chosen = strongest[rng.integers(0, len(strongest), (20, 3))]  # (20, 3, 5)
        chosen[0] = strongest[-1]  # the same worst replacement every time
        sums = np.zeros((20, 6, 5))
        for visit, batch in enumerate(batches):
            sums[:, batch] += chosen[:, visit]
        moves = np.linalg.norm(encoder.coefficients @ sums, axis=(1, 2))
        reached = max(reached, float(moves.max()))
    assert reached <= bound * (1 + 1e-12)
    assert reached == pytest.approx(bound, rel=1e-3)
