"""The map of where shuffling pays: points of it by plans, the page and the picture by its data."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedbandit.plan import Plan
from fedbandit.planner.studies import shuffle_map, shuffling
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from tests.planner.studies.written_map import written_map

ROOT = Path(__file__).resolve().parents[3]
GALLERY = ROOT / "docs" / "gallery"
LEMMA, P_SUMS, BATCHES, VECTORS, EXACT_VECTORS = shuffling.WAYS


@pytest.mark.parametrize("way", shuffling.WAYS)
def test_every_cell_of_the_pages_table_is_what_is_computed(way):
    printed = {(one.way, one.rounds, one.epsilon): one.silos for one in written_map(GALLERY)}
    assert len(printed) == len(shuffling.WAYS) * len(shuffle_map.ROUNDS) * len(shuffle_map.EPSILONS)
    for rounds in shuffle_map.ROUNDS:
        for epsilon in shuffle_map.TABLED:
            assert printed[way, rounds, epsilon] == pytest.approx(shuffling.fewest_silos(way, rounds, epsilon))


def test_the_page_has_every_row():
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    for row in shuffle_map.as_table(written_map(GALLERY)):
        assert f"| {' | '.join(row)} |\n" in page
    assert "(gallery/shuffling.svg)" in page


@pytest.mark.parametrize("mechanism, way", [("tree", P_SUMS), ("batches", BATCHES)])
def test_plans_on_both_sides_of_a_threshold(mechanism, way):
    epsilon, rounds = 1e-3, 100
    found = shuffling.fewest_silos(way, rounds, epsilon)
    assert found is not None
    for silos, pays in ((math.ceil(1.1 * found), True), (math.floor(found / 1.1), False)):
        base = Plan(silos, rounds, 10, Privacy(epsilon, 1e-6), trust="shuffle", schedule=every(25), bits=16)
        shuffled, rival = base.changed(mechanism=mechanism), base.changed(trust="silo", mechanism="toeplitz")
        assert shuffled.guarantee.promised
        assert (shuffled.noise_std < rival.noise_std) == pays


@pytest.mark.parametrize("epsilon", [1e-4, 1.0])
@pytest.mark.parametrize("rounds", [100, 1_000])
def test_the_exact_vector_sum_pays_from_a_handful_of_silos_on(rounds, epsilon):
    found = shuffling.fewest_silos(EXACT_VECTORS, rounds, epsilon)
    assert found is not None
    for silos, pays in ((round(found), True), (round(found) - 1, False), (1_000, True)):
        base = Plan(silos, rounds, 10, Privacy(epsilon, 1e-6), "silo", schedule=every(25), bits=16)
        summed = base.changed(trust="vector-sum", mechanism="tree")
        assert summed.guarantee.promised
        assert (summed.noise_std < base.noise_std) == pays


def test_the_lemma_pays_and_then_ends():
    assert shuffling.fewest_silos(LEMMA, 10_000, 1e-2) is None
    found = shuffling.fewest_silos(LEMMA, 100, 1e-3)
    assert found is not None
    plans = [
        Plan(
            math.ceil(1.1 * found), 100, 10, Privacy(1e-3, 1e-6), trust, "tree", every(25), calibration="paper", bits=12
        )
        for trust in ("shuffle", "silo")
    ]
    assert plans[0].noise_std < plans[1].noise_std


def test_written_and_read_back(tmp_path):
    some = [shuffling.Threshold(LEMMA, rounds, 1e-3, 10.0 * rounds) for rounds in shuffle_map.ROUNDS]
    shuffle_map.write(tmp_path, some, "svg")
    assert written_map(tmp_path) == some
    assert (tmp_path / "shuffling.svg").stat().st_size > 1_000
