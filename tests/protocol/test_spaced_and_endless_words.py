"""Numbers and words of guarantees and ledgers for people who come back, several silos, own parts, and no end."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from fedbandit.bandit.statistics import width
from fedbandit.plan import Plan
from fedbandit.privacy import ledger
from fedbandit.privacy.accounting import gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy, at_most
from fedbandit.privacy.grid import slack
from fedbandit.privacy.ledger import Entry, Gaussian
from fedbandit.privacy.spending import TermSpent, spent
from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import ToeplitzEncoder
from fedbandit.protocol.personal import own_entries
from fedbandit.protocol.trusts.secure_sum import PersonalSecureSum
from fedbandit.schedule import clock, every


def plan_of(trust: str = "secure-sum", budget: dict[str, Any] | None = None, **fields: Any) -> Plan:
    privacy = Privacy(1.0, 1e-5, **(budget or {}))
    return Plan(
        **{"silos": 4, "rounds": 12, "dim": 2, "schedule": clock(60.0), "trust": trust, **fields}, privacy=privacy
    )


def term_of(plan: Plan, *syncs: int) -> TermSpent:
    entries = list[Entry]()
    for sync in syncs:
        event = plan.release("here", 1, sync)
        assert event is not None
        entries.append(ledger.append(entries[-1].hash if entries else ledger.GENESIS, event))
    (term,) = spent(entries, mechanisms.encoder).terms
    return term


# -- the ledger of a term without an end ---------------------------------------------------------------------------


def test_the_last_entry_says_what_was_spent_wherever_it_stands() -> None:
    plan = plan_of(forget=0.9, endless=True)
    both, last = term_of(plan, 0, 1, 2, 7), term_of(plan, 7)
    assert both.mu == last.mu == term_of(plan, 7, 0).mu > term_of(plan, 0).mu
    assert both.released == last.released == 8


def test_two_draws_count_as_two() -> None:
    plan = plan_of(forget=0.9, endless=True)
    for draws in (2, 3):
        assert term_of(plan, *[7] * draws).mu == pytest.approx(math.sqrt(draws) * term_of(plan, 7).mu)


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        (1, "3 visits to 1 silo, each in a batch of its own, over the whole run"),
        (2, "3 visits to 1 silo, each at least 2 syncs after the last one there, over the whole run"),
        (3, "3 visits to 1 silo, each at least 3 syncs after the last one there, over the whole run"),
    ],
)
def test_how_far_visits_lie_apart(apart: int, words: str) -> None:
    assert words in str(plan_of(budget={"participations": 3, "apart": apart}).guarantee)


def test_the_ratio_of_the_noises_is_that_of_what_is_drawn() -> None:
    plan = plan_of(ratio=6.25)
    drawn = plan.protocol.scales
    assert drawn.diagonal / drawn.bias == pytest.approx(2.5)
    assert "covariance and bias noise in the ratio 2.5:1" in str(plan.guarantee)


def test_the_step_about_visits_apart_has_the_numbers_of_the_matrix() -> None:
    plan = plan_of("silo", {"participations": 3, "apart": 2})
    column = plan.encoder.coefficients
    reach = float(np.linalg.norm(column[:, [0, 2, 4]].sum(axis=1)))
    (found,) = (step for step in plan.guarantee.steps if "syncs apart" in step)
    stated = [float(number) for number in re.findall(r"\d+\.\d{4,5}", found)]
    shift = plan.request.shift.total
    expected = [reach, 3 * float(np.linalg.norm(column[:, 0])), shift, reach, reach * shift]
    assert stated == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("trust", "how"), [("silo", "compose in squares, to sqrt 2 times"), ("secure-sum", "add up to 2 times")]
)
def test_two_silos_are_mentioned(trust: str, how: str) -> None:
    text = str(plan_of(trust, {"silos_per_user": 2}).guarantee)
    assert f"A user visits at most 2 silos; the shifts {how} the sensitivity." in text
    assert "A user visits" not in str(plan_of(trust).guarantee)


@pytest.mark.parametrize(
    ("endless", "words"),
    [(True, "does not make up for what it missed"), (False, "missing makes up for what it missed")],
)
def test_what_a_silo_missed(endless: bool, words: str) -> None:
    assert words in str(plan_of("silo", forget=0.9, endless=endless).guarantee)


@pytest.mark.parametrize("personal", [(), (1,)])
@pytest.mark.parametrize("endless", [True, False])
def test_what_the_grid_adds_is_for_the_releases_that_hold_somebody(endless: bool, personal: tuple[int, ...]) -> None:
    """Without an end those that visits enter, in all silos; otherwise all there are. What silos release to themselves
    are as many again."""
    budget = {"participations": 2, "silos_per_user": 3}
    plan = plan_of(budget=budget, forget=0.9, endless=endless, personal=personal)
    numbers = width(2) * (plan.encoder.touches * 2 * 3 if endless else 12) * (2 if personal else 1)
    assert f"adds at most {at_most(slack(numbers, 4), 1)} to epsilon" in plan.guarantee.steps[-1]


# -- what is left if parties collude ------------------------------------------------------------------------------


@pytest.mark.parametrize("visited", [1, 2])
def test_collusion_by_hand(visited: int) -> None:
    """Mixer and analyzer see each silo with its own noise: visits compose in squares. Two silos that collude leave two
    of four, and visits add up in the sum."""
    plan = plan_of(budget={"silos_per_user": visited})
    mu = 1 / gaussian_sigma(1.0, 1e-5)  # of the sum over three silos, a user's visits added up
    alone = mu / visited * math.sqrt(3) * math.sqrt(visited)
    answers = dict(plan.guarantee.answers)
    assert answers["If parties collude"] == (
        f"mixer and analyzer together, even with all other silos: epsilon = {at_most(gaussian_epsilon(alone, 1e-5))}; "
        "any 2 other silos, even with one of the two: "
        f"epsilon = {at_most(gaussian_epsilon(mu * math.sqrt(3 / 2), 1e-5))}"
    )


# -- noise -----------------------------------------------------------------------------------------------------------


def test_the_ledger_has_the_noise_of_the_theorem_and_nothing_beside_it() -> None:
    plan = Plan(4, 12, 2, Privacy(1.0, 1e-5), "silo", "tree", every(1), calibration="paper")
    event = plan.release("here", 1, 0)
    assert event is not None
    assert isinstance(event.cost, Gaussian)
    assert event.cost.sigma == event.cost.own_sigma == pytest.approx(plan.protocol.scales.diagonal, rel=1e-9)


def test_noise_of_own_releases_in_their_units() -> None:
    protocol = plan_of(dim=3, personal=(1,)).protocol
    assert isinstance(protocol, PersonalSecureSum)
    own = own_entries(3, (1,))
    expected = protocol.own_scales.packed(3) * 2.0 ** (20 + 10)
    np.testing.assert_allclose(protocol.own_drawn_scales[own], expected[own], rtol=1e-12)
    assert not protocol.own_drawn_scales[~own].any()
    assert protocol.widest_noise == max(*protocol.own_scales, *protocol.scales) == protocol.own_scales.diagonal


# -- the matrix ------------------------------------------------------------------------------------------------------


def test_rows_that_count_more_are_counted_as_the_proof_says() -> None:
    """The least weight by the worst visits, what is above it row by row: c_0 + c_n + ... at most."""
    encoder = mechanisms.encoder("toeplitz", 10)
    column, weights = encoder.coefficients[:, 0], np.array([2.0, 1.0, 5.0, 1.0, 0.0, 3.0, 1.0, 1.0, 4.0, 0.0])
    for visits, apart in ((8, 1), (3, 2), (2, 4)):
        starts = range(0, 10, apart)[:visits]
        worst = np.sum([np.concatenate([np.zeros(start), column[: 10 - start]]) for start in starts], axis=0)
        row = [sum(column[start] for start in starts if start <= k) for k in range(10)]
        squares = float(np.sum(worst[:9] ** 2)) + float(np.maximum(weights - 1, 0) @ np.square(row))
        assert encoder.moved(weights, visits, apart) == pytest.approx(math.sqrt(squares), rel=1e-12)
    assert encoder.moved(np.zeros(10), 3, 2) == 0.0


@pytest.mark.parametrize("rise", [1e-3, 0.5, 1.0])
def test_a_column_that_rises_a_little_does_not_fall(rise: float) -> None:
    """Where it rises the first visits need not be the worst, and the general bound is used."""
    column = (1.0, 0.0, rise, 0.0, rise)
    rising = ToeplitzEncoder(5, column)
    assert not rising._falls
    gram = rising.coefficients.T @ rising.coefficients
    pairs = [float(gram[np.ix_(two, two)].sum()) for two in ([0, 1], [0, 2], [0, 3], [0, 4], [1, 3], [2, 4])]
    assert rising.visits_norm(2, 1) ** 2 >= max(pairs) * (1 - 1e-12)
