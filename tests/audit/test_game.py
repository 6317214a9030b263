"""What adversaries retrace is what the protocols do, and results do not depend on how runs are spread over cores."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit import Plan, Privacy, every, growing
from fedbandit.audit.adaptive import AdaptiveGame, adaptive_games, decisive_background
from fedbandit.audit.adversaries import Moment
from fedbandit.audit.auditor import findings
from fedbandit.audit.bounds import Bound
from fedbandit.audit.game import CalendarGame, calendar_game
from fedbandit.audit.report import audit
from fedbandit.audit.subjects import subject
from fedbandit.audit.worlds import neighbours
from fedbandit.planner.catalogue import plan_for
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.base import SILOS, Protocol

from .faults import small_plan, small_subject

BASE = Plan(silos=3, rounds=24, dim=2, privacy=Privacy(1.0, 1e-5))


class Watcher:
    """Compares the totals that the analyzer sees with those retraced for the world that is played."""

    name = "watcher"
    bound: Bound = "dp"

    def __init__(self, world: int) -> None:
        self.world = world
        self.largest = 0.0

    def score(self, protocol: Protocol, moment: Moment) -> float:
        retraced = moment.expected[self.world].sum(axis=SILOS)
        self.largest = max(self.largest, float(np.abs(protocol.total(moment.mixed) - retraced).max()))
        return 0.0


@pytest.mark.parametrize("world", [0, 1])
@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("name", ["ldp", "silo", "secure-sum", "central"])
def test_retraced_releases_are_the_protocol_s_own(name: str, acting: str, world: int, no_noise: SimulatedNoise) -> None:
    plan = plan_for(name, BASE, every(6)).changed(acting=acting)
    watcher = Watcher(world)
    calendar_game(plan, plan.silos, neighbours(plan, plan.silos), (watcher,)).play(world, 5, no_noise)
    assert watcher.largest == 0


def test_a_wrong_world_is_noticed_by_the_same_comparison(no_noise: SimulatedNoise) -> None:
    plan = plan_for("silo", BASE, every(6))
    watcher = Watcher(1)
    calendar_game(plan, plan.silos, neighbours(plan, plan.silos), (watcher,)).play(0, 5, no_noise)
    assert watcher.largest > 0


def test_decoded_at_the_silo_tells_exactly_as_much() -> None:
    """P_alt sends prefix sums of the same releases: the same draws give the same scores."""
    scores = []
    for name in ("ldp", "ldp-alt"):
        plan = plan_for(name, BASE, every(3))
        game = calendar_game(plan, 1, neighbours(plan, 1), subject(name, 1.0, 1e-5).games[0].adversaries)  # type: ignore[attr-defined]
        scores.append(game.play(1, 50, SimulatedNoise(np.random.default_rng(3))).scores)
    assert np.allclose(scores[0], scores[1], rtol=0, atol=1e-9)


def test_witnesses_decide_by_the_noisy_model() -> None:
    """With a growing schedule somebody has a choice after the user's batch, and noise makes them differ."""
    plan = small_plan(schedule=growing(1.5))
    game = calendar_game(plan, 1, neighbours(plan, 1), ())
    assert sum(batch.choosers for batch in game.worlds[0]) >= 2


def test_the_result_does_not_depend_on_the_number_of_workers() -> None:
    subject_ = small_subject(small_plan())
    assert audit(subject_, trials=2_500, seed=9) == audit(subject_, trials=2_500, seed=9, workers=2)


def test_another_seed_gives_another_result() -> None:
    games = small_subject(small_plan()).games
    assert findings(games, 1e-5, 1_000, seed=1)[0].hits != findings(games, 1e-5, 1_000, seed=2)[0].hits


def test_progress_reaches_one() -> None:
    shares: list[float] = []
    audit(small_subject(small_plan()), trials=3_000, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_norm_of_one_user_decides_when_dubey_synchronises() -> None:
    plan = plan_for("dubey", Plan(silos=100, rounds=600, dim=5, privacy=Privacy(1.0, 1e-5)))
    size, round_ = decisive_background(plan)
    assert 0 < size <= 1
    (game,) = adaptive_games(plan, chunk=20)
    assert isinstance(game, AdaptiveGame)
    noise = SimulatedNoise(np.random.default_rng(0))
    assert np.all(game.play(1, 20, noise).scores == 0.5)  # exactly then
    assert np.all(game.play(0, 20, noise).scores < 0)  # later
    assert round_ < plan.rounds


def test_a_calendar_game_has_fixed_times_and_sizes() -> None:
    (game,) = small_subject(small_plan()).games
    assert isinstance(game, CalendarGame)
    envelopes = {game.play(world, 10, SimulatedNoise(np.random.default_rng(world))).envelope for world in (0, 1)}
    assert len(envelopes) == 1
    assert [time for time, _, _ in envelopes.pop()] == list(small_plan().times)
