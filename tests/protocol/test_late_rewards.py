"""Rewards that come in another batch, under mechanisms with negative entries: the whole domain is searched.

A mechanism whose columns point apart lets one user move the releases further by coming in another batch than by being
another person in the same one. C = [[1, 0], [-1, 1]] is the smallest: squared shift 10 where one batch has 9.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy import ledger
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency, joint_shift, late_factor
from fedbandit.privacy.spending import spent
from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.endless import EndlessEncoder
from fedbandit.schedule import clock, every

BITS = 26
MATRICES = {
    "apart": np.array([[1.0, 0.0], [-1.0, 1.0]]),
    "differences": np.eye(4) - np.eye(4, k=-1),
    "late_weight": np.array([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [10.0, 0.0, 1.0]]),
    "mixed": np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-0.75, -0.5, 1.0]]),
    "harmless": np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, -0.25, 1.0]]),
}


@dataclass(frozen=True)
class Given(Encoder):
    """A matrix written down."""

    matrix: Floats = field(compare=False, repr=False)

    fraction_bits = 2

    def row(self, k: int) -> Floats:
        return self.matrix[k, : k + 1]

    def decoder_row(self, k: int) -> Floats:
        return (np.tril(np.ones((self.size, self.size))) @ np.linalg.inv(self.matrix))[k, : k + 1]


@pytest.fixture(autouse=True)
def plugged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each matrix as a mechanism in a file of its own, as anybody would add one."""
    for name in MATRICES:
        (tmp_path / f"{name}.py").write_text(
            f"from {__name__} import MATRICES, Given\n\n\n"
            f"def encoder(size):\n    return Given(size, MATRICES[{name!r}])\n"
        )
    monkeypatch.setattr(mechanisms, "__path__", [*mechanisms.__path__, str(tmp_path)])
    mechanisms.encoder.cache_clear()
    yield
    for name in MATRICES:
        sys.modules.pop(f"fedbandit.protocol.mechanisms.{name}", None)
    mechanisms.encoder.cache_clear()


def plan(name: str, adjacency: Adjacency = "replace-one", **fields: object) -> Plan:
    syncs = len(MATRICES[name])
    budget = {"privacy": Privacy(1.0, 1e-5, adjacency), "trust": "silo", **fields}
    return Plan(3, 5 * syncs, 2, mechanism=name, schedule=every(5), bits=BITS, **budget)  # type: ignore[arg-type]


def users(made: Plan) -> Floats:
    """People of every direction and of the extreme rewards, in units of each number's noise; the last is nobody."""
    angles = np.linspace(0, 2 * np.pi, 73)[:-1]
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    packed = [contributions(x, np.full(len(x), y), BITS, made.centre) * 2.0**-BITS for y in (0.0, 1.0)]
    everybody = np.concatenate([*packed, np.zeros((1, 5))])
    return everybody / made.protocol.scales.packed(2)


def largest_mu(made: Plan, rows: int | None = None) -> float:
    """The longest move of all releases (or the first `rows`) by one person, wherever and whoever they may be."""
    people, columns = users(made), made.encoder.coefficients[:rows].T
    products, lengths = people @ people.T, np.sum(people**2, axis=1)
    if made.privacy.adjacency == "add-remove":  # type: ignore[union-attr]
        products, lengths = products[-1:], lengths  # against nobody
    one = lengths[-1:] if len(products) == 1 else lengths
    squared = (
        (columns[j] @ columns[j]) * one[:, None]
        + (columns[k] @ columns[k]) * lengths
        - 2 * (columns[j] @ columns[k]) * products
        for j, k in product(range(len(columns)), repeat=2)
    )
    return math.sqrt(max(float(each.max()) for each in squared))


def test_the_smallest_case_by_hand() -> None:
    factor = late_factor("replace-one", 1.0, 1.0, MATRICES["apart"])
    counted = (factor * joint_shift("replace-one")) ** 2 * 2  # squared column norm 2
    assert counted == pytest.approx(10)
    assert late_factor("add-remove", 1.0, 1.0, MATRICES["apart"]) == 1.0


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("centre", "ratio"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.2), (0.0, 4.0)])
@pytest.mark.parametrize("name", MATRICES)
def test_nobody_moves_the_releases_further_than_counted(
    name: str, centre: float, ratio: float, adjacency: Adjacency
) -> None:
    made = plan(name, adjacency, centre=centre, ratio=ratio)
    budget = 1 / gaussian_sigma(1.0, 1e-5)
    found = largest_mu(made)
    assert found <= budget * (1 + 1e-9)
    if name != "late_weight" or adjacency == "add-remove":  # there the first two rows ask for more than all three
        assert found >= 0.99 * budget


@pytest.mark.parametrize("name", MATRICES)
def test_what_a_ledger_has_spent_is_true_after_every_release(name: str) -> None:
    made, entries, previous = plan(name), [], ledger.GENESIS
    for sync in range(len(MATRICES[name])):
        event = made.release("a", 1, sync)
        assert event is not None
        entries.append(ledger.append(previous, event))
        previous = entries[-1].hash
        assert spent(entries, mechanisms.encoder).mu >= largest_mu(made, sync + 1) * (1 - 1e-9)
    assert spent(entries, mechanisms.encoder).epsilon <= 1 + 1e-9


@pytest.mark.parametrize("drawn", [(0, 1, 1), (0, 1, 1, 1), (1,), (0, 0, 1)])
def test_what_a_ledger_has_spent_is_true_where_rows_were_drawn_unequally_often(drawn: tuple[int, ...]) -> None:
    """The same person, whose reward comes in batch 0 or in batch 1: the releases move by u (C_0 - C_1), |u|^2 = 2.

    A ledger that counts each row as often as it was drawn says 0.387 for (0, 1, 1) at sigma 10, where 0.424 is true."""
    made, entries, previous, sigma = plan("apart"), [], ledger.GENESIS, 0.0
    for sync in drawn:
        event = made.release("a", 1, sync)
        assert event is not None
        assert isinstance(event.cost, ledger.Gaussian)
        entries.append(ledger.append(previous, event))
        previous, sigma = entries[-1].hash, event.cost.sigma
    rows = MATRICES["apart"][list(drawn)]
    moved = math.sqrt(2 * float(np.sum((rows[:, 0] - rows[:, 1]) ** 2))) / sigma
    assert spent(entries, mechanisms.encoder).mu >= moved * (1 - 1e-9)


def test_a_sync_that_was_not_drawn_yet_costs_nothing() -> None:
    """The first row of C is (1, 0): drawn twice, and nothing after it, it costs sqrt 2 times its sensitivity."""
    event = plan("apart").release("a", 1, 0)
    assert event is not None
    assert isinstance(event.cost, ledger.Gaussian)
    first = ledger.append(ledger.GENESIS, event)
    entries = [first, ledger.append(first.hash, event, 2)]
    once = event.cost.sensitivity / event.cost.sigma
    assert spent(entries, mechanisms.encoder).mu == pytest.approx(math.sqrt(2) * once)


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central"])
@pytest.mark.parametrize("silos_per_user", [1, 2])
def test_the_proof_says_that_a_late_reward_moves_more(trust: str, silos_per_user: int) -> None:
    privacy = Privacy(1.0, 1e-5, participations=2, silos_per_user=silos_per_user)
    made = plan("apart", trust=trust, privacy=privacy)
    further = re.search(r"can move the releases further: sensitivity ([\d.]+)\.", str(made.guarantee))
    assert further is not None
    assert float(further[1]) == pytest.approx(2 * math.sqrt(10), rel=1e-4)
    within = re.search(r"sensitivity [\d.]+ x [\d.]+ = ([\d.]+)\.", str(made.guarantee))
    assert within is not None
    assert float(within[1]) == pytest.approx(2 * math.sqrt(9), rel=1e-4)
    sigma = float(re.search(r"deviation ([\d.]+) on the diagonal", str(made.guarantee))[1])  # type: ignore[index]
    visits = math.sqrt(silos_per_user) if trust == "silo" else silos_per_user
    assert sigma == pytest.approx(2 * math.sqrt(10) * visits * gaussian_sigma(1.0, 1e-5), rel=1e-4)
    assert "further" not in str(plan("harmless", trust=trust, privacy=privacy).guarantee)


@pytest.mark.parametrize("name", ["tree", "batches", "toeplitz", "blt", "optimal"])
def test_our_own_mechanisms_have_no_negative_entry(name: str) -> None:
    encoder = mechanisms.encoder(name, 9)
    assert not encoder.has_negative
    assert encoder.coefficients.min() >= 0
    assert late_factor("replace-one", 1.0, 1.0, encoder.coefficients) == pytest.approx(1.0)


@pytest.mark.parametrize("name", MATRICES)
def test_these_have(name: str) -> None:
    assert mechanisms.encoder(name, len(MATRICES[name])).has_negative


@pytest.mark.parametrize("rounds", [1, 3, 30])
def test_a_run_without_an_end_counts_late_rewards_however_few_rounds_are_looked_at(
    rounds: int, takes_back: str
) -> None:
    """C[k, j] = 1 at k = j and -3/4 at k = j + 4: a reward that comes four syncs late moves the releases further."""
    made = endless_plan(takes_back, rounds)
    columns = np.zeros((2, 10))
    columns[0, [0, 4]], columns[1, [4, 8]] = BAND[0::4], BAND[0::4]
    people = users(made)
    squared = np.sum((people[:, None, :, None] * columns[0] - people[None, :, :, None] * columns[1]) ** 2, axis=(2, 3))
    found, budget = math.sqrt(float(squared.max())), 1 / gaussian_sigma(1.0, 1e-5)
    assert 0.99 * budget <= found <= budget * (1 + 1e-9)


def test_a_band_with_a_gap_is_as_long_as_it_is(takes_back: str) -> None:
    """A release holds people of five batches, so five batches must fit into its sums."""
    assert endless_plan(takes_back, 30).encoder.touches == 5


def test_columns_that_overlap_are_all_looked_at_and_no_more(takes_back: str) -> None:
    """Columns 0 and 4 share row 4; column 4 ends in row 8."""
    whole = endless_plan(takes_back, 9).encoder.coefficients
    np.testing.assert_array_equal(endless_plan(takes_back, 1).encoder.overlapping, whole)
    assert whole[8, 4] == -0.75


BAND = (1.0, 0.0, 0.0, 0.0, -0.75)


@pytest.fixture
def takes_back(tmp_path: Path) -> str:
    """A mechanism without an end that has a negative entry."""
    (tmp_path / "takes_back.py").write_text(
        f"from {__name__} import BAND, EndlessGiven\n\n\n"
        "def endless(size, forget):\n    return EndlessGiven(size, BAND, forget=forget)\n"
    )
    mechanisms.endless.cache_clear()
    return "takes_back"


@dataclass(frozen=True)
class EndlessGiven(EndlessEncoder):
    """A band written down."""

    fraction_bits = 2


def endless_plan(name: str, rounds: int) -> Plan:
    return Plan(3, rounds, 2, Privacy(1.0, 1e-5), "silo", name, clock(60.0), bits=BITS, forget=0.9, endless=True)


def test_entries_that_are_not_on_the_declared_grid_are_refused(tmp_path: Path) -> None:
    """A silo would release with entries rounded to 1/4, and the sensitivity would be that of others."""
    for function in ("encoder(size)", "endless(size, forget)"):
        kind = "EndlessGiven(size, (1.0, 0.3), forget=forget)" if "forget" in function else "Given(size, OFF)"
        (tmp_path / "off.py").write_text(
            f"import numpy as np\nfrom {__name__} import EndlessGiven, Given\n\n"
            f"OFF = np.array([[1.0, 0.0], [0.3, 1.0]])\n\n\ndef {function}:\n    return {kind}\n"
        )
        sys.modules.pop("fedbandit.protocol.mechanisms.off", None)
        importlib.invalidate_caches()
        with pytest.raises(ArgumentError, match=r"^mechanism 'off' must have entries that are multiples of 2\^-2, its"):
            mechanisms.endless("off", 2, 0.9) if "forget" in function else mechanisms.encoder("off", 2)
    sys.modules.pop("fedbandit.protocol.mechanisms.off", None)
