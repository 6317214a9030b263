"""Anybody's plan on the live path: its calendar, all visits of a user, and the silos that share the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("opendp")
pytest.importorskip("nats")

from fedbandit import Plan, Privacy, clock, every
from fedbandit.audit.live_game import LiveGame, live_reduced
from fedbandit.audit.report import audit
from fedbandit.federation.exact import exact_noise
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.schedule import Clock
from tests.audit.test_live_game import Watcher

UNUSED = SimulatedNoise(np.random.default_rng(0))
MANY = Privacy(1.0, 1e-5, participations=3, silos_per_user=2)
SPACED = Privacy(1.0, 1e-5, participations=3, silos_per_user=2, apart=3)
PRESENT = Privacy(1.0, 1e-5, "add-remove", participations=2)


def _game(**fields: Any) -> LiveGame:
    (game,) = live_reduced(Plan(**{"silos": 5, "rounds": 40, "dim": 2, "privacy": MANY, **fields})).games
    assert isinstance(game, LiveGame)
    return game


def test_a_plan_on_a_clock_is_run_on_a_clock_under_add_remove_too() -> None:
    """Sound live noise fails once in 1,000 audits, two of them once in a million."""
    case = live_reduced(Plan(3, 40, 2, PRESENT, trust="silo", schedule=clock(3600)))
    assert isinstance(case.plan.schedule, Clock)
    assert case.plan.visits == "private"
    reports = [audit(case, trials=4)]
    if reports[0].verdict != "holds":
        reports.append(audit(case, trials=4))
    assert reports[-1].verdict == "holds", [report.failed for report in reports]
    assert {check.kind for check in reports[-1].checks} == {
        *("claimed noise", "residuals", "times and sizes", "served apart")
    }


def test_in_the_world_without_the_user_nobody_comes_in_their_place() -> None:
    game = _game(privacy=PRESENT, trust="silo", schedule=clock(3600))
    with_user, without = (sum(len(comers) for batch in world for comers in batch) for world in game.worlds)
    assert with_user == without + 2


@pytest.mark.parametrize(
    "fields",
    [
        {"trust": "silo", "schedule": clock(0.1)},
        {"trust": "silo", "schedule": every(2), "visits": "public"},
        {"trust": "secure-sum", "schedule": clock(60)},
        {"trust": "secure-sum", "schedule": clock(60), "privacy": PRESENT},
        {"trust": "silo", "schedule": clock(60), "privacy": SPACED},
        {"trust": "secure-sum", "schedule": clock(60), "privacy": SPACED, "forget": 0.9},
    ],
    ids=str,
)
@pytest.mark.parametrize("world", [0, 1])
def test_all_visits_count_at_all_silos_of_the_user(
    fields: dict[str, Any], world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, what crosses is what is retraced: no visit was left out as one too many, or as one too soon."""
    monkeypatch.setattr(exact_noise, "_gaussian", lambda scales, lead: np.zeros((*lead, len(scales)), dtype=np.int64))
    game, watcher = _game(**fields), Watcher()
    LiveGame(game.plan, game.worlds, (watcher,)).play(world, 1, UNUSED)  # type: ignore[arg-type]
    assert len(watcher.moments) == game.plan.syncs == 8
    for moment in watcher.moments:
        assert np.array_equal(game.plan.protocol.total(moment.held), moment.expected[world].sum(axis=-2))
    privacy = game.plan.privacy
    assert privacy is not None
    low, high = watcher.moments[0].expected
    moved = (low != high).any(axis=-1)[0]
    assert moved.tolist() == [silo < privacy.silos_per_user for silo in range(game.plan.silos)]
    came = [comer.key for batch in game.worlds[0] for comer in batch[0]].count("the user")
    assert came == privacy.participations


@pytest.mark.parametrize(
    ("fields", "silos", "colluding"),
    [({"colluding": 8, "silos": 10}, 4, 2), ({"cohort": 2, "silos": 10}, 2, 1), ({"cohort": 5, "colluding": 3}, 5, 3)],
)
def test_the_smallest_sync_is_run_with_all_who_collude(fields: dict[str, Any], silos: int, colluding: int) -> None:
    plan = _game(privacy=Privacy(1.0, 1e-5), schedule=clock(60), **fields).plan
    assert (plan.silos, plan.smallest_cohort, plan.colluders) == (silos, silos, colluding)
