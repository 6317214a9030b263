"""The audit of schedules that the data decide: the rule is the plan's own, and one user is decisive."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit import Plan, Privacy, adaptive
from fedbandit._validate import ArgumentError
from fedbandit.audit.adaptive_game import MESSAGES, RULE, AdaptiveGame, adaptive_games, decisive_background
from fedbandit.audit.cases import reduced
from fedbandit.audit.report import audit
from fedbandit.audit.residuals import Recorder, failures
from fedbandit.presets import plan_for
from fedbandit.privacy.noise import SimulatedNoise


def test_the_norm_of_one_user_decides_when_dubey_synchronises() -> None:
    plan = plan_for("dubey", Plan(silos=100, rounds=600, dim=5, privacy=Privacy(1.0, 1e-5)))
    size, round_ = decisive_background(plan)
    assert 0 < size <= 1
    (game,) = adaptive_games(plan)
    assert isinstance(game, AdaptiveGame)
    noise = SimulatedNoise(np.random.default_rng(0))
    assert np.all(game.play(1, 20, noise).scores == 0.5)  # exactly then
    assert np.all(game.play(0, 20, noise).scores < 0)  # later
    assert round_ < plan.rounds


@pytest.mark.parametrize("visits", [1, 3])
def test_without_noise_messages_and_nodes_are_those_retraced(visits: int, no_noise: SimulatedNoise) -> None:
    """Each noiseless number that stands where its own world expects it adds (gap / scale)^2 / 2: here computed anew."""
    budget = Privacy(1.0, 1e-5, participations=visits)
    plan = plan_for("private-adaptive", Plan(silos=10, rounds=16, dim=2, privacy=budget), None)
    _, game = adaptive_games(plan)
    assert [view.name for view in game.adversaries] == [MESSAGES, RULE]
    assert (game.worlds[0] != game.worlds[1]).any(axis=-1).sum() == visits
    covariances = np.array(game.worlds)[:, :, plan.dim :]
    gaps = np.diff(plan.rule.tree.coefficients @ covariances, axis=0)[0]  # (rounds, entries): of each node
    whole = game.worlds[1].sum(axis=0) - game.worlds[0].sum(axis=0)
    sent = 0.5 * np.sum((whole / plan.protocol.release_scales(1)) ** 2)
    looked = 0.5 * np.sum((gaps / plan.rule.node_scales) ** 2)
    for world, sign in ((0, -1), (1, 1)):
        scores = game.play(world, 3, no_noise).scores  # nobody asks before the horizon
        assert np.allclose(scores[0], sign * sent, rtol=1e-9)
        assert np.allclose(scores[1], sign * (sent + looked), rtol=1e-9)


@pytest.mark.parametrize("trust", ["secure-sum", "central"])
def test_an_adaptive_schedule_is_audited_where_each_silo_is_protected_on_its_own(trust: str) -> None:
    plan = Plan(5, 40, 2, Privacy(1.0, 1e-5), trust=trust, schedule=adaptive(9.0))
    with pytest.raises(ArgumentError, match="trust must"):
        adaptive_games(plan)


def test_what_one_silo_cannot_show_is_refused() -> None:
    plan = Plan(5, 40, 2, Privacy(1.0, 1e-5, silos_per_user=2), trust="silo", schedule=adaptive(9.0))
    with pytest.raises(ArgumentError, match="silos_per_user must be 1"):
        adaptive_games(plan)


@pytest.mark.parametrize("visits", [3, 40])
def test_a_private_rule_for_several_visits_holds(visits: int) -> None:
    plan = plan_for("private-adaptive", Plan(10, 40, 2, Privacy(1.0, 1e-5, participations=visits)), None)
    report = audit(reduced(plan), 1_000, seed=0)
    assert report.verdict == "holds", report.failed


def test_what_is_drawn_anew_is_compared_in_the_runs_that_draw() -> None:
    """Runs that are over say nothing; those that go on are counted once each, and what they repeat is seen."""
    rng, recorder = np.random.default_rng(4), Recorder(1)
    drawn, before = rng.standard_normal((200, 2)), rng.standard_normal((200, 3))
    runs = np.arange(200) % 2 == 0
    before[runs, 2] = drawn[runs, 1]
    recorder.fresh("looks", drawn, {"release before": before}, runs)
    recorder.fresh("looks", drawn[:, ::-1], {}, np.zeros(200, dtype=bool))
    tally = recorder.tallies()["looks"]
    assert tally.squares["entry of all silos"][:, 1].tolist() == [100, 100]
    assert np.allclose(tally.squares["entry of all silos"][:, 0], (drawn[runs] ** 2).sum(axis=0))
    assert tally.products["release before"].shape == (2, 3, 4)
    ((tests, failed),) = failures({"looks": tally}).values()
    assert tests == 2 + 6 + 1  # sizes, pairs of numbers, and repeats, of which there are none to read
    assert len(failed) == 1
    assert "number 1 of this noise is correlated with number 2 of the release before it (+1.000)" in failed[0]
