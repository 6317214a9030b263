"""What adversaries retrace is what the protocols do, and what everybody sees of a message is fixed by the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedbandit import Plan, Privacy, every, growing
from fedbandit.audit.calendar_game import CalendarGame, calendar_game
from fedbandit.audit.worlds import neighbours
from fedbandit.presets import plan_for
from fedbandit.privacy.accounting import gaussian_epsilon
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.adversaries import Bound, Moment, Residual
from fedbandit.protocol.base import SILOS, Protocol
from fedbandit.protocol.guarantee import Acting
from tests.audit.faults import small_case, small_plan

BASE = Plan(silos=3, rounds=24, dim=2, privacy=Privacy(1.0, 1e-5))


class Watcher:
    """Compares the totals that the analyzer sees with those retraced for the world that is played."""

    name = "watcher"
    bound: Bound = "dp"
    remembers = False

    def __init__(self, world: int) -> None:
        self.world = world
        self.largest = 0.0
        self.kept: list[int] = []

    def score(self, protocol: Protocol, moment: Moment) -> float:
        retraced = moment.expected[self.world].sum(axis=SILOS)
        self.largest = max(self.largest, float(np.abs(protocol.total(moment.held) - retraced).max()))
        self.kept.append(len(moment.sent))
        return 0.0

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        return ()


def watched(plan: Plan, watcher: Watcher) -> CalendarGame:
    return replace(calendar_game(plan, plan.silos, neighbours(plan, plan.silos)), adversaries=(watcher,))


@pytest.mark.parametrize("world", [0, 1])
@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("name", ["ldp", "silo", "secure-sum", "central"])
def test_retraced_releases_are_the_protocol_s_own(
    name: str, acting: Acting, world: int, no_noise: SimulatedNoise
) -> None:
    watcher = Watcher(world)
    watched(plan_for(name, BASE, every(6)).changed(acting=acting), watcher).play(world, 5, no_noise)
    assert watcher.largest == 0


@pytest.mark.parametrize("mechanism", ["blt", "toeplitz", "optimal", "tree"])
@pytest.mark.parametrize("rounds", [24, 100])
def test_retraced_releases_are_right_to_the_unit_whatever_the_mechanism(
    mechanism: str, rounds: int, no_noise: SimulatedNoise
) -> None:
    """A mechanism that rounds its releases is retraced before rounding: coefficients on a grid would be far off."""
    watcher = Watcher(1)
    plan = BASE.changed(trust="silo", mechanism=mechanism, rounds=rounds, schedule=every(1))
    watched(plan, watcher).play(1, 2, no_noise)
    assert watcher.largest <= plan.silos * plan.encoder.rounding_units / 2


@pytest.mark.parametrize("mechanism", ["blt", "toeplitz", "optimal", "tree"])
@pytest.mark.parametrize("rounds", [8, 24, 100])
def test_exact_noise_amounts_to_the_claimed_epsilon_and_no_more(mechanism: str, rounds: int) -> None:
    plan = BASE.changed(trust="central", mechanism=mechanism, rounds=rounds, schedule=every(1))
    (mu,) = calendar_game(plan, 3, neighbours(plan, 3)).exact_mu().values()
    assert 1 - 1e-4 < gaussian_epsilon(mu, 1e-5) <= 1 + 1e-6


def test_a_wrong_world_is_noticed_by_the_same_comparison(no_noise: SimulatedNoise) -> None:
    watcher = Watcher(1)
    watched(plan_for("silo", BASE, every(6)), watcher).play(0, 5, no_noise)
    assert watcher.largest > 0


@pytest.mark.parametrize(("remembers", "kept"), [(False, [1, 1, 1, 1]), (True, [1, 2, 3, 4])])
def test_earlier_messages_are_kept_for_those_who_need_them(
    remembers: bool, kept: list[int], no_noise: SimulatedNoise
) -> None:
    watcher = Watcher(0)
    watcher.remembers = remembers
    watched(plan_for("silo", BASE, every(6)), watcher).play(0, 5, no_noise)
    assert watcher.kept == kept


def test_decoded_at_the_silo_tells_exactly_as_much() -> None:
    """P_alt sends prefix sums of the same releases: the same draws give the same scores."""
    scores = []
    for name in ("ldp", "ldp-alt"):
        plan = plan_for(name, BASE, every(3))
        game = calendar_game(plan, 1, neighbours(plan, 1))
        scores.append(game.play(1, 50, SimulatedNoise(np.random.default_rng(3))).scores)
    assert np.allclose(scores[0], scores[1], rtol=0, atol=1e-9)


def test_witnesses_decide_by_the_noisy_model() -> None:
    """With a growing schedule somebody has a choice after the user's batch, and noise makes them differ."""
    plan = small_plan(schedule=growing(1.5))
    game = calendar_game(plan, 1, neighbours(plan, 1))
    assert sum(batch.choosers for batch in game.worlds[0]) >= 2


def test_a_calendar_game_keeps_to_the_times_and_sizes_of_its_plan() -> None:
    (game,) = small_case(small_plan()).games
    assert isinstance(game, CalendarGame)
    for world in (0, 1):
        played = game.play(world, 10, SimulatedNoise(np.random.default_rng(world)))
        assert played.envelopes == (game.planned,)
    assert len(game.planned) == small_plan().syncs
