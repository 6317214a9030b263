"""What shuffled releases have to hide, counted by hand, and every number that a promise behind a mixer prints."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_epsilon
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.clones import amplified_epsilon, shuffled_epsilon_of
from fedbandit.privacy.ledger import Gaussian
from fedbandit.protocol.adversaries import SeesMessages
from fedbandit.protocol.trusts.shuffle import Hidden, SeesShuffled, ShuffleProtocol
from fedbandit.protocol.trusts.shuffle import _guarantee as promised
from fedbandit.schedule import adaptive, at, clock, every
from tests.protocol.test_proofs import numbers


def shuffled(**fields: Any) -> Plan:
    """20 rounds in 4 batches of 5, unless told otherwise."""
    shared = {"privacy": Privacy(1e-2, 1e-6), "mechanism": "tree", "schedule": every(5), "bits": 12, **fields}
    return Plan(shared.pop("silos", 5_000), 20, 2, trust="shuffle", **shared)


@pytest.mark.parametrize("visits, releases", [(1, 3), (2, 4)])  # 3 levels of the tree; there are only 4 releases
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_what_is_to_be_hidden_counted_by_hand(adjacency: Any, visits: int, releases: int) -> None:
    """h = 3/4 and ratio 4 give s = 9/4: one point is worth sqrt(13/4), two of them are at most 3 apart."""
    plan = shuffled(privacy=Privacy(1e-2, 1e-6, adjacency, visits), centre=0.25, ratio=4.0)
    found = Hidden.of(plan.request)
    assert found is not None
    rounding = math.sqrt(4 * 2 + 4) * 2.0**-13  # of one point: half a step in each of 2 numbers and 4 entries
    one = 3 + 2 * rounding if adjacency == "replace-one" else math.sqrt(13 / 4) + rounding
    assert found.shift == pytest.approx(visits * one, rel=1e-12)
    assert found.spread == pytest.approx(20 * (3 + 2 * rounding), rel=1e-12)  # the root of the tree holds every round
    assert (found.releases, found.silos) == (releases, 4_999)


@pytest.mark.parametrize(
    "mechanism, schedule, points, releases",
    [
        ("batches", at(7, 9, 20), 11, 1),  # the largest batch
        ("batches", every(20), 20, 1),
        ("tree", at(2, 9, 20), 11, 2),  # [1, 2] holds 9, [3] holds 11
        ("tree", at(2, 3, 19, 20), 20, 3),
    ],
)
def test_the_fullest_release_is_what_others_may_differ_by(
    mechanism: str, schedule: Any, points: int, releases: int
) -> None:
    found = Hidden.of(shuffled(mechanism=mechanism, schedule=schedule).request)
    assert found is not None
    assert found.spread == pytest.approx(points * (math.sqrt(4.5) + 2 * math.sqrt(6) * 2.0**-13), rel=1e-12)
    assert found.releases == releases


def test_one_of_the_others_may_tell_which_message_is_its_own() -> None:
    for silos, left in ((1, 1), (2, 1), (3, 2)):
        found = Hidden.of(shuffled(silos=silos).request)
        assert found is not None
        assert found.silos == left


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": clock(60.0)},
        {"visits": "public"},
        {"acting": "eager"},
        {"schedule": adaptive(3.0)},
        {"schedule": adaptive(3.0, private=True)},
        {"mechanism": "toeplitz"},
        {"mechanism": "early"},
    ],
    ids=str,
)
def test_where_it_is_not_known_how_many_points_a_release_has_clones_hide_nothing(fields: dict[str, Any]) -> None:
    assert Hidden.of(shuffled(**fields).request) is None
    assert Hidden.of(shuffled().request) is not None


@pytest.mark.parametrize("mechanism, levels", [("tree", 3), ("batches", 1)])
@pytest.mark.parametrize("visits", [1, 2])
def test_every_number_of_an_amplified_promise(mechanism: str, levels: int, visits: int) -> None:
    plan = shuffled(mechanism=mechanism, privacy=Privacy(1e-2, 1e-6, participations=visits))
    guarantee, text = plan.guarantee, str(plan.guarantee)
    step = 2.0**-12
    sigma = math.sqrt(plan.protocol.scales.diagonal**2 - 8 * step**2)  # as drawn, without what the grid needs
    one, points = math.sqrt(4.5) + 2 * math.sqrt(6) * step / 2, 20 if mechanism == "tree" else 5
    moved, apart = numbers(text, "by at most # standard deviations, and releases of two silos are at most # apart")
    assert moved == pytest.approx(visits * one / sigma, rel=1e-3)
    assert apart == pytest.approx(points * one / sigma, rel=1e-3)
    releases = min(4, visits * levels)
    said = "1 release" if releases == 1 else f"{releases} releases"
    among, epsilon, delta = numbers(
        text,
        f"Among the remaining # silos, optimal composition over {said} with the user's data, each shuffled anew, gives "
        "(#, #)-DP.",
    )
    assert (among, delta) == (4_999, 1e-6)
    certified = amplified_epsilon(visits * one / sigma, points * one / sigma, 4_999, releases, 1e-6)
    assert certified * (1 - 1e-9) <= epsilon <= certified * 1.002
    assert 0.99e-2 < epsilon <= 1e-2  # the noise is the least that will do, to a thousandth
    alone = gaussian_epsilon(math.sqrt(levels) * visits * one / sigma, 1e-6)
    for where, before in (
        (guarantee.statement, "Without the mixer it is (#, #)"),
        (text, "Without a mixer, a silo's transcript is (#, #)-DP, computed exactly."),
        (
            dict(guarantee.answers)["If parties collude"],
            "if the mixer colludes too, only the noise is left: (#, #), against",
        ),
    ):
        printed, at_delta = numbers(where, before)
        assert alone * (1 - 1e-9) <= printed <= alone * 1.002
        assert at_delta == 1e-6
    assert alone > 1.5e-2
    assert "every reward is counted in the batch of its round" in text
    assert "holds without the mixer" not in text
    assert "one after the other" not in text  # that is for several silos
    assert plan.protocol.adversaries() == (SeesShuffled(tests_noise=True),)


def test_where_nothing_is_hidden_the_proof_is_that_of_the_noise_alone() -> None:
    plan, silo = shuffled(silos=3), shuffled(silos=3).changed(trust="silo")
    assert plan.protocol.scales == silo.protocol.scales
    assert plan.guarantee.steps[: len(silo.guarantee.steps) - 1] == silo.guarantee.steps[:-1]
    (alone, delta) = numbers(
        str(plan.guarantee), "Without a mixer, a silo's transcript is (#, #)-DP, computed exactly."
    )
    assert (alone, delta) == (0.01, 1e-6)
    assert "With this much noise, the same holds without the mixer." in plan.guarantee.statement
    assert "every reward is counted" not in str(plan.guarantee)
    assert "clone" not in str(plan.guarantee)
    assert [type(one) for one in plan.protocol.adversaries()] == [SeesShuffled, SeesMessages]


def test_noise_of_the_lemma_that_is_too_little_says_what_it_gives() -> None:
    """With visits in public nobody knows how many points a release has, and the noise alone is left."""
    plan = shuffled(silos=10**6, privacy=Privacy(1e-3, 1e-6), calibration="paper", visits="public", bits=8)
    assert not plan.guarantee.promised
    (given,) = numbers(
        plan.guarantee.statement, "the lemma's sensitivity is too small here: this noise gives an epsilon of #"
    )
    sigma = math.sqrt(plan.protocol.scales.diagonal**2 - 8 * 2.0**-16)
    alone = gaussian_epsilon(math.sqrt(3) * (math.sqrt(4.5) + 2 * math.sqrt(6) * 2.0**-9) / sigma, 1e-6)
    assert alone * (1 - 1e-9) <= given <= alone * 1.002


def test_unless_it_is_told_that_it_needs_a_mixer_its_noise_is_held_to_be_enough() -> None:
    protocol = shuffled().protocol
    told = ShuffleProtocol(protocol.encoder, protocol.scales, protocol.dim, protocol.bits, protocol.silos)
    assert [type(one) for one in told.adversaries()] == [SeesShuffled, SeesMessages]


@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_the_printed_width_is_that_of_the_narrowest_noise_drawn(calibration: Any) -> None:
    plan = shuffled(silos=10**6, privacy=Privacy(1e-3, 1e-6), calibration=calibration, bits=8)
    (width,) = numbers(str(plan.guarantee), "is drawn on the grid 2^-8, where it is at least # steps wide")
    assert width == pytest.approx(min(plan.protocol.scales) * 2**8, rel=5e-3)
    flat = len(set(plan.protocol.scales)) == 1
    assert flat == (calibration == "paper")  # the theorem has the same noise on every number


def test_noise_that_is_too_little_by_the_clones_as_well_promises_nothing() -> None:
    plan = shuffled()
    request, hidden = plan.request, Hidden.of(plan.request)
    assert hidden is not None
    enough = math.sqrt(plan.protocol.scales.diagonal**2 - 8 * 4.0**-12) * (1 + 1e-9)
    assert promised(request, enough, ()).promised
    refused = promised(request, 0.9 * enough, ())
    assert not refused.promised
    (given,) = numbers(refused.statement, "this noise gives an epsilon of #")
    assert given == pytest.approx(hidden.epsilon(request, 0.9 * enough), rel=2e-3)
    assert 1e-2 < given < 1.3e-2


# -- people who visit several silos ------------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [2, 3])
def test_every_number_of_a_promise_to_people_who_visit_several_silos(visits: int) -> None:
    """Each silo is promised the v-th part of epsilon, and of delta what group privacy leaves."""
    plan = shuffled(mechanism="batches", privacy=Privacy(1e-2, 1e-6, silos_per_user=visits), bits=20)
    text, sigma = str(plan.guarantee), plan.protocol.scales.diagonal
    one = math.sqrt(4.5) + 2 * math.sqrt(6) * 2.0**-21
    each = 1e-6 / sum(math.exp(i * 1e-2 / visits) for i in range(visits))
    epsilon, delta = numbers(text, "over 1 release with the user's data, each shuffled anew, gives (#, #)-DP.")
    assert delta == pytest.approx(each, rel=1e-3)
    assert epsilon == pytest.approx(amplified_epsilon(one / sigma, 5 * one / sigma, 4_999, 1, each), rel=1e-3)
    together, whole = numbers(
        text, f"visits at most {visits} silos. Changing these one after the other gives (#, #)-DP"
    )
    assert together == pytest.approx(visits * epsilon, rel=1e-3)
    assert 0.99e-2 < together <= 1e-2
    assert whole == 1e-6
    alone = gaussian_epsilon(math.sqrt(visits) * one / sigma, 1e-6)
    assert numbers(text, "transcript is (#, #)-DP, computed exactly.")[0] == pytest.approx(alone, rel=1e-3)


def test_several_silos_cost_more_behind_a_mixer_than_without_one_and_never_more_than_without_one() -> None:
    once, twice = (shuffled(mechanism="batches", privacy=Privacy(1e-2, 1e-6, silos_per_user=v)) for v in (1, 2))
    noises = [one.protocol.scales.diagonal for one in (once, twice)]
    alone = [one.changed(trust="silo").protocol.scales.diagonal for one in (once, twice)]
    assert alone[1] / alone[0] == pytest.approx(math.sqrt(2), rel=1e-3)
    assert noises[1] / noises[0] > math.sqrt(2)
    many = shuffled(silos=50, privacy=Privacy(1e-2, 1e-6, silos_per_user=40))
    assert many.protocol.scales == pytest.approx(many.changed(trust="silo").protocol.scales)
    assert "With this much noise, the same holds without the mixer." in many.guarantee.statement


@pytest.mark.parametrize("silos, needed", [(2, False), (5_000, True)])
def test_what_several_silos_spend_without_a_mixer_is_composed_in_squares(silos: int, needed: bool) -> None:
    """Two silos each release a sum that one user moves: mu^2 doubles, so sqrt 2 times one shift is accounted for."""
    plan = shuffled(silos=silos, mechanism="batches", privacy=Privacy(1e-2, 1e-6, silos_per_user=2), bits=20)
    event, one = plan.release("a", 1, 0), math.sqrt(4.5) + 2 * math.sqrt(6) * 2.0**-21
    assert event is not None
    assert isinstance(event.cost, Gaussian)
    assert event.cost.sensitivity == pytest.approx(math.sqrt(2) * one, rel=1e-9)
    assert isinstance(plan.protocol, ShuffleProtocol)
    assert plan.protocol.needs_mixer == needed


def test_an_epsilon_beyond_all_powers_of_e_is_no_reason_to_fail() -> None:
    made = shuffled(silos=3, mechanism="batches", privacy=Privacy(3000.0, 1e-6, silos_per_user=3), bits=24)
    assert made.guarantee.promised
    assert "With this much noise, the same holds without the mixer." in made.guarantee.statement


@pytest.mark.parametrize("sigma_share", [0.2, 0.99, 1.0])
def test_where_several_silos_spend_too_much_nothing_is_certified(sigma_share: float) -> None:
    plan = shuffled(mechanism="batches", privacy=Privacy(1e-2, 1e-6, silos_per_user=2))
    hidden = Hidden.of(plan.request)
    assert hidden is not None
    certified = hidden.epsilon(plan.request, sigma_share * plan.protocol.scales.diagonal)
    assert (certified == math.inf) == (sigma_share < 1)


def test_two_silos_of_three_changed_behind_a_mixer_summed_in_full() -> None:
    """Shuffled Gaussians of three silos on a grid: two of them change, at opposite sides of the third."""
    shift, epsilon, grid = 0.5, 0.4, np.linspace(-7.0, 7.0, 141)
    each, worlds = epsilon / 2, []
    for centres in ((0.0, 0.0, 0.3), (shift, -shift, 0.3)):
        bells = [norm.pdf(grid - centre) * (grid[1] - grid[0]) for centre in centres]
        orders = [np.einsum("i,j,k->ijk", *(bells[i] for i in order)) for order in permutations(range(3))]
        worlds.append(np.mean(orders, axis=0))
    exact = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in (worlds, worlds[::-1]))
    delta = next(d for d in np.geomspace(1e-6, 0.5, 400) if shuffled_epsilon_of(shift, 1.0, 3, float(d)) <= each)
    assert 0 < exact <= delta * (1 + math.exp(each))
