"""Visits that lie apart: the bound is never below the truth, exact for shifted columns, and tight elsewhere."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, adaptive, clock, every
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.privacy import ledger, spending
from fedbandit.privacy.sensitivity import joint_shift
from fedbandit.privacy.spacing import dynamic, evenly
from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import Encoder, ToeplitzEncoder

YEAR = 365


def admissible(size: int, visits: int, apart: int) -> list[tuple[int, ...]]:
    sets = (batches for count in range(1, visits + 1) for batches in itertools.combinations(range(size), count))
    return [one for one in sets if all(b - a >= apart for a, b in itertools.pairwise(one))]


def largest(gram: Floats, visits: int, apart: int) -> float:
    return max(float(gram[np.ix_(one, one)].sum()) for one in admissible(len(gram), visits, apart))


def test_the_bound_is_never_below_the_truth_and_seldom_far_above() -> None:
    rng, ratios = np.random.default_rng(0), []
    for _ in range(150):
        size, visits, apart = (int(n) for n in (rng.integers(2, 9), rng.integers(1, 5), rng.integers(1, 5)))
        matrix = np.tril(rng.random((size, size)) ** 3)
        gram, spaced = matrix.T @ matrix, dynamic(matrix.T @ matrix, visits, apart)
        truth = largest(gram, visits, apart)
        assert spaced.bound >= truth * (1 - 1e-12)
        ratios.append(np.sqrt(spaced.bound / truth))
        assert spaced.columns in admissible(size, visits, apart)
    assert max(ratios) < 1.1
    assert np.mean(ratios) < 1.01


def test_where_columns_share_nothing_the_worst_visits_are_found() -> None:
    """The auditor plays them. Ties aside there is one such set, and the last columns may be in it."""
    rng = np.random.default_rng(3)
    for size, visits, apart in itertools.product((3, 6, 7), (1, 2, 4), (1, 2, 3)):
        for values in (rng.random(size), np.arange(1.0, size + 1), np.arange(size, 0.0, -1)):
            spaced = dynamic(np.diag(values), visits, apart)
            sums = {one: float(values[list(one)].sum()) for one in admissible(size, visits, apart)}
            assert spaced.bound == pytest.approx(max(sums.values()), rel=1e-12)
            assert spaced.columns == max(sums, key=sums.__getitem__)


@pytest.mark.parametrize("name", ["toeplitz", "blt", "batches"])
def test_shifted_columns_are_worst_at_the_beginning(name: str) -> None:
    encoder = mechanisms.encoder(name, 9)
    for visits, apart, rows in itertools.product((1, 2, 3, 9), (1, 2, 4), (3, 9)):
        weights = (np.arange(9) < rows).astype(float)
        seen = encoder.coefficients[:rows]
        truth = largest(seen.T @ seen, visits, apart)
        assert encoder.moved(weights, visits, apart) ** 2 == pytest.approx(truth, rel=1e-12)


def test_a_column_that_rises_is_not_taken_for_one_that_falls() -> None:
    """Then 0, n, 2n, ... need not be worst, and the general bound is used."""
    rising = ToeplitzEncoder(5, (1.0, 0.0, 3.0, 0.0, 0.0))
    truth = largest(rising.coefficients.T @ rising.coefficients, 2, 1)
    early = rising.coefficients[:, list(evenly(5, 2, 1))].sum(axis=1)
    assert early @ early < truth
    assert rising.visits_norm(2, 1) ** 2 >= truth * (1 - 1e-12)


def test_rows_that_count_more_are_never_undercounted() -> None:
    rng = np.random.default_rng(1)
    for name, visits, apart in itertools.product(("toeplitz", "tree"), (2, 3), (1, 3)):
        encoder = mechanisms.encoder(name, 8)
        for _ in range(20):
            weights = rng.choice([0.0, 1.0, 1.0, 2.0, 5.0], 8)
            weighted = np.sqrt(weights)[:, None] * encoder.coefficients
            truth = largest(weighted.T @ weighted, visits, apart)
            assert encoder.moved(weights, visits, apart) ** 2 >= truth * (1 - 1e-12)


def test_other_batches_in_the_other_world_move_no_further() -> None:
    """Visits of any two users in any two admissible sets, by search: within the bound, and close to it."""
    rng, coefficients = np.random.default_rng(2), mechanisms.encoder("toeplitz", 6).coefficients
    sets, worst = admissible(6, 2, 2), 0.0
    for _ in range(4_000):
        here, there = (sets[int(n)] for n in rng.integers(len(sets), size=2))
        moved = np.zeros((6, 6))
        for sign, batches in ((1, here), (-1, there)):
            moved += sign * sum(np.outer(coefficients[:, j], _contribution(rng)) for j in batches)
        worst = max(worst, float(np.linalg.norm(moved)))
    bound = joint_shift("replace-one") * mechanisms.encoder("toeplitz", 6).visits_norm(2, 2)
    assert 0.8 * bound < worst <= bound


def _contribution(rng: np.random.Generator) -> Floats:
    """Bias and covariance of a visit on a circle, where the worst pairs lie."""
    angle = rng.choice([0.0, 2 / 3, 1.0]) * np.pi
    x = np.array([np.cos(angle), np.sin(angle)])
    return np.append(x, np.outer(x, x).ravel())


@pytest.mark.parametrize(("visits", "apart", "part"), [(12, 30, 1.93), (52, 7, 2.1)])
@pytest.mark.parametrize("name", ["toeplitz", "blt"])
def test_noise_of_a_year_against_all_in_one_batch(name: str, visits: int, apart: int, part: float) -> None:
    encoder = mechanisms.encoder(name, YEAR)
    ratio = visits * encoder.column_norm / encoder.visits_norm(visits, apart)
    assert part < ratio < part + 0.02


def test_a_plan_has_less_noise_and_says_why() -> None:
    together, spaced = (_plan(apart) for apart in (0, 30))
    assert spaced.noise_std < 0.6 * together.noise_std
    text = str(spaced.guarantee)
    assert "at most 12 visits to 1 silo, each at least 30 syncs after the last one there, over the whole run" in text
    assert "A user counts in at most 12 batches of 365, any two at least 30 syncs apart." in text
    assert "leaves out those that come more often or sooner" in text
    assert "apart" not in str(together.guarantee)
    assert spaced.serves_uncounted == "public"
    assert spaced.hash != together.hash
    assert Plan.from_dict(spaced.as_dict()) == spaced
    assert "apart" not in together.as_dict()["privacy"]


def _plan(apart: int, **fields: Any) -> Plan:
    budget = Privacy(1.0, 1e-6, participations=12, apart=apart)
    return Plan(**{"silos": 3, "rounds": YEAR, "dim": 3, "privacy": budget, "schedule": clock(60), **fields})


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("uncounted", {"uncounted": "local"}),
        ("apart", {"acting": "eager", "schedule": every(1)}),
        ("apart", {"trust": "local", "mechanism": "batches"}),
        ("apart", {"trust": "shuffle"}),
        ("apart", {"rounds": 30}),
        ("apart", {"schedule": adaptive(2.0)}),
        ("apart", {"rounds": 1_100, "mechanism": "tree"}),
    ],
)
def test_what_has_no_proof_is_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as error:
        _ = _plan(30, **fields).guarantee
    assert error.value.field == field


def test_a_matrix_with_negative_entries_is_refused() -> None:
    with pytest.raises(ArgumentError, match="negative"):
        ToeplitzEncoder(3, (1.0, -0.5, 0.0)).visits_norm(2, 1)


def test_apart_says_nothing_of_people_who_count_once() -> None:
    with pytest.raises(ArgumentError, match="apart must be 0 where a user counts once"):
        Privacy(1.0, 1e-6, apart=3)


@pytest.mark.parametrize("mechanism", ["toeplitz", "optimal", "tree"])
def test_the_ledger_adds_up_to_the_promise_and_never_below_the_truth(mechanism: str) -> None:
    budget = Privacy(1.0, 1e-6, participations=3, apart=2)
    plan = Plan(1, 9, 3, budget, trust="silo", mechanism=mechanism, schedule=clock(60))
    events = [event for sync in range(9) if (event := plan.release("here", 1, sync)) is not None]
    assert [(event.visits, event.apart) for event in events] == [(3, 2)] * 9
    spent = [_spent(events[: upto + 1]) for upto in range(9)]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(1.0, rel=1e-9)
    cost = events[0].cost
    assert isinstance(cost, ledger.Gaussian)
    for upto in range(9):
        rows = plan.encoder.coefficients[: upto + 1]
        truth = cost.sensitivity / cost.sigma * np.sqrt(largest(rows.T @ rows, 3, 2))
        assert _mu(events[: upto + 1]) >= truth * (1 - 1e-12)
    assert _spent([*events, events[4]]) > 1.0
    assert _term([*events, events[4]]).overspent


def _term(events: list[ledger.Release]) -> spending.TermSpent:
    entries, head = [], ledger.GENESIS
    for event in events:
        entries.append(ledger.append(head, event))
        head = entries[-1].hash
        assert ledger.event_from_json(ledger.event_to_json(event)) == event
    ledger.verify(entries)
    (term,) = spending.spent(entries, mechanisms.encoder).terms
    return term


def _mu(events: list[ledger.Release]) -> float:
    return _term(events).mu


def _spent(events: list[ledger.Release]) -> float:
    return _term(events).epsilon


def test_an_event_without_spacing_has_the_text_it_always_had() -> None:
    plan = Plan(1, 9, 3, Privacy(1.0, 1e-6, participations=3), trust="silo", schedule=clock(60))
    event = plan.release("here", 1, 0)
    assert event is not None
    text = ledger.event_to_json(event)
    assert "apart" not in text
    assert "visits" not in text
    assert ledger.event_from_json(text) == event


def test_every_mechanism_can_space_visits() -> None:
    for name in mechanisms.names():
        encoder: Encoder = mechanisms.encoder(name, 12)
        assert encoder.column_norm <= encoder.visits_norm(3, 4) <= 3 * encoder.column_norm
        batches = encoder.worst_visits(3, 4)
        assert batches in admissible(12, 3, 4)
        moved = np.linalg.norm(encoder.coefficients[:, list(batches)].sum(axis=1))
        assert 0.9 * encoder.visits_norm(3, 4) <= moved <= encoder.visits_norm(3, 4) * (1 + 1e-12)
