"""Every planted fault is caught, and the same audit of the sound plan finds nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedbandit.audit.adaptive_game import RULE, AdaptiveGame
from fedbandit.audit.auditor import ENVELOPE
from fedbandit.audit.calendar_game import CalendarGame
from fedbandit.audit.cases import Case, case
from fedbandit.audit.report import audit
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.noise import SimulatedNoise
from tests.audit.faults import (
    BUDGET,
    BiasWithoutNoise,
    NodesTwice,
    NoMask,
    OneRedraw,
    SizeByData,
    made_of,
    scaled,
    small_case,
    small_plan,
    with_protocol,
)

SEED = 5
TREE = small_plan(mechanism="tree")


def _raw_sums() -> Case:
    lazy = small_case(small_plan())
    (game,) = lazy.games
    assert isinstance(game, CalendarGame)
    return replace(lazy, games=(replace(game, eager=True),))


def _add_remove_noise() -> Case:
    wrong = small_plan(privacy=replace(BUDGET, adjacency="add-remove"))
    return with_protocol(small_case(small_plan()), wrong.protocol)


def _without_bias_scales() -> Case:
    protocol = small_plan().protocol
    return with_protocol(small_case(small_plan()), replace(protocol, scales=protocol.scales._replace(bias=0.0)))


FAULTS = {
    "sigma / 1.5": lambda: scaled(small_case(small_plan()), 1 / 1.5),
    "bias un-noised": lambda: with_protocol(small_case(small_plan()), made_of(BiasWithoutNoise, small_plan().protocol)),
    "bias un-noised, and said so": _without_bias_scales,
    "one redraw": lambda: with_protocol(small_case(small_plan()), made_of(OneRedraw, small_plan().protocol)),
    "tree nodes twice": lambda: with_protocol(small_case(TREE), made_of(NodesTwice, TREE.protocol)),
    "add/remove noise for replace-one": _add_remove_noise,
    "acting on raw sums": _raw_sums,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str) -> None:
    report = audit(FAULTS[fault](), seed=SEED)
    assert report.verdict == "broken"
    assert report.epsilon_lower > BUDGET.epsilon


@pytest.mark.parametrize("mechanism", ["toeplitz", "tree", "batches", "blt"])
def test_the_sound_plan_holds_with_little_room(mechanism: str) -> None:
    report = audit(small_case(small_plan(mechanism=mechanism)), seed=SEED)
    assert report.verdict == "holds"
    assert report.epsilon_lower > 0.8 * BUDGET.epsilon


def test_a_size_that_depends_on_data_is_caught() -> None:
    whole = small_case(small_plan())
    (game,) = whole.games
    assert isinstance(game, CalendarGame)
    worlds = tuple(world[0].fixed[0, 0, 0] for world in game.worlds)
    assert max(worlds) > 0.6 * 2**20 > min(worlds)
    low, high = (
        tuple(replace(b, fixed=b.fixed[:, :1], actions=b.actions[:, :0]) for b in world) for world in game.worlds
    )
    alone = replace(whole, games=(replace(game, worlds=(low, high)),))
    report = audit(with_protocol(alone, made_of(SizeByData, alone.plan.protocol)), seed=SEED)
    assert report.verdict == "broken"
    assert report.worst.adversary == ENVELOPE


def test_a_share_that_hides_nothing_is_caught() -> None:
    plan = small_plan(trust="secure-sum")
    sound = small_case(plan)
    assert audit(sound, seed=SEED).verdict == "holds"
    report = audit(with_protocol(sound, made_of(NoMask, plan.protocol)), seed=SEED)
    assert report.verdict == "broken"
    assert report.worst.adversary == "the mixer"


def test_one_colluding_silo_too_many_is_caught() -> None:
    """Noise planned for nobody colluding, one silo of two tells: mu is sqrt 2 times as large."""
    planned = small_plan(trust="secure-sum", silos=2)
    told = small_case(small_plan(trust="secure-sum", silos=2, colluding=1))
    assert audit(told, seed=SEED).verdict == "holds"
    assert audit(with_protocol(told, planned.protocol), seed=SEED).verdict == "broken"


def test_too_little_noise_on_the_determinant_rule_is_caught() -> None:
    whole = case("private-adaptive", 1.0, 1e-5)
    game = whole.games[1]
    assert isinstance(game, AdaptiveGame)
    sound = replace(whole, games=(game,))
    faulty = replace(whole, games=(replace(game, rule=replace(game.rule, scales=game.rule.scales.times(1 / 3))),))
    assert audit(sound, trials=2_000, seed=SEED).verdict == "holds"
    report = audit(faulty, trials=2_000, seed=SEED)
    assert (report.verdict, report.worst.adversary) == ("broken", RULE)


def test_verdicts_over_many_audits() -> None:
    """A correct plan is called broken in at most 5 % of audits, noise / 1.5 and / 1.3 always, noise x 1.3 never."""
    sound = small_case(small_plan())
    verdicts = [audit(sound, trials=1_000, seed=seed).verdict for seed in range(60)]
    assert verdicts.count("broken") <= 3
    for factor, verdict, trials in ((1 / 1.5, "broken", 1_000), (1 / 1.3, "broken", 4_000), (1.3, "holds", 1_000)):
        assert {audit(scaled(sound, factor), trials=trials, seed=seed).verdict for seed in range(8)} == {verdict}


def test_scores_have_the_law_of_the_claimed_mu() -> None:
    """The log-likelihood ratio of exactly calibrated noise is N(mu^2 / 2, mu^2) in world 1, to 4 standard errors."""
    (game,) = small_case(small_plan()).games
    scores = game.play(1, 20_000, SimulatedNoise(np.random.default_rng(0))).scores[0]
    mu = 1 / gaussian_sigma(BUDGET.epsilon, BUDGET.delta)
    assert abs(scores.mean() - mu**2 / 2) < 4 * mu / np.sqrt(len(scores))
    assert abs(scores.std() / mu - 1) < 4 / np.sqrt(2 * len(scores))
