"""Late and missing rewards: a batch holds what came while it was open, whoever it is of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.presets import isolated, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from fedbandit.simulator.engine import Collector, DelayedCollector, play_together
from fedbandit.simulator.kernels import Beliefs, policy_row
from fedbandit.simulator.population import AT_ONCE, NEVER, Delays, Population
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic
from tests.statistical import ALPHA

TASK = synthetic(dim=3, arms=5)
PLAN = Plan(5, 60, 3, Privacy(5.0, 0.1), schedule=every(7))


def test_waits_are_geometric_and_some_never_end() -> None:
    """Chi-square of size ALPHA; a mean that is off by a tenth is rejected."""
    chances = np.random.default_rng(0).random(200_000)
    waits = Delays(mean=3.0, missing=0.2).waits(chances)
    assert abs((waits == NEVER).mean() - 0.2) < 5 * np.sqrt(0.16 / 200_000)

    def accepted(mean: float) -> bool:
        law = (mean / (1 + mean)) ** np.arange(21)
        cells = np.append(law[:-1] - law[1:], law[-1])
        found = np.bincount(np.minimum(waits[waits < NEVER], 20), minlength=21)
        return bool((((found - found.sum() * cells) ** 2) / (found.sum() * cells)).sum() <= chi2.isf(ALPHA, 20))

    assert accepted(3.0)
    assert not accepted(3.3)
    assert (Delays(missing=0.3).waits(chances) == np.where(chances < 0.3, NEVER, 0)).all()
    windowed = Delays(mean=3.0, window=4).waits(chances)
    assert windowed[windowed < NEVER].max() == 4


def test_rewards_at_once_through_the_path_of_late_ones_change_nothing() -> None:
    """A delay so short that nobody is late, and a window that nobody misses: the same numbers to the last bit."""
    plans = {"ours": PLAN, "paper": plan_for("ldp", PLAN)}
    plain = simulate(TASK, plans, runs=2, seed=3)
    late = simulate(TASK, plans, runs=2, seed=3, delays=Delays(mean=1e-9, window=10))
    assert late.frame.equals(plain.frame)
    slow = simulate(TASK, plans, runs=2, seed=3, delays=Delays(mean=9.0))
    assert not slow.frame.equals(plain.frame)


def test_a_batch_is_what_came_while_it_was_open() -> None:
    """Users are put into batches one by one, by the definition."""
    delays = Delays(mean=5.0, missing=0.25, window=12)
    population = Population(TASK, 5, (0, 4), 7, delays)
    late, plain = (kind(population, [PLAN], [60], 3) for kind in (DelayedCollector, _Recording))
    waits = population.waits(1, 60)
    beliefs = Beliefs(
        np.zeros((1, 2, 3)),
        np.broadcast_to(np.eye(3), (1, 2, 3, 3)).copy(),
        np.ones((1, 2)),
        np.array([policy_row(PLAN.policy)]),
    )
    expected, seen = np.zeros((9, 2, 3, 9), dtype=np.int64), 0
    for sync, (first, end) in enumerate(zip((0, *PLAN.times), PLAN.times, strict=False)):
        for collector in (late, plain):
            population.play(first + 1, end - first, beliefs, collector.open(end - first))
            collector.close(end)
        points = plain._take_points(0)
        for run, silo, place in np.ndindex(2, 5, end - first):
            wait = waits[run, silo, first + place]
            arrival = NEVER if wait == NEVER else first + 1 + place + wait
            batch = next((k for k, time in enumerate(PLAN.times) if arrival <= time), None)
            if batch is not None:
                shard = next(s for s in range(3) if s * 5 // 3 <= silo < (s + 1) * 5 // 3)
                row = points[run, silo, place]
                expected[batch, run, shard] += contributions(row[:-1], row[-1], PLAN.bits)
                seen += 1
        np.testing.assert_array_equal(late._take(0), expected[sync])
    assert 0.5 < seen / (2 * 5 * 60) < 0.75, "a quarter is missing, some are still on their way"


class _Recording(Collector):
    keeps_points = True


def test_waits_do_not_depend_on_how_rounds_are_divided() -> None:
    population = Population(TASK, 3, (0, 1), 7, Delays(mean=2.0, missing=0.1))
    whole = population.waits(1, 20)
    parts = np.concatenate([population.waits(1, 13), population.waits(14, 7)], axis=2)
    np.testing.assert_array_equal(whole, parts)


def test_what_never_comes_teaches_nothing() -> None:
    """With half of the rewards missing, regret is that of a federation with half as many users, or more."""
    plan = Plan(20, 400, 3, trust="none", schedule=every(20))
    regret = {
        share: simulate(TASK, {"one": plan}, runs=8, seed=1, delays=Delays(missing=share) if share else AT_ONCE)
        for share in (0.0, 0.9)
    }
    difference = regret[0.9].final("one") - regret[0.0].final("one")
    assert difference.mean() > 3 * difference.std(ddof=1) / np.sqrt(8)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (isolated(PLAN), "its silos act on every user at once"),
        (plan_for("private-adaptive", PLAN), "its silos act on every user at once"),
        (plan_for("local", PLAN), "its protocol depends on who comes when"),
        (plan_for("sdp-vector-sum", PLAN.changed(silos=200, privacy=Privacy(1.0, 0.1))), "its protocol depends on who"),
    ],
)
def test_late_rewards_are_refused_where_they_have_no_meaning(plan: Plan, message: str) -> None:
    with pytest.raises(ValueError, match=f"^delays must be left out for 'one': {message}"):
        simulate(TASK, {"one": plan}, runs=1, delays=Delays(mean=1.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mean": -1.0}, "delay must be a finite number > 0, got -1.0"),
        ({"missing": 1.0}, "missing must lie strictly between 0 and 1, got 1.0"),
        ({"window": -1}, "window must be a whole number >= 0, got -1"),
    ],
)
def test_what_is_no_delay_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Delays(**values)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_silos_one_by_one_give_what_pooled_ones_give() -> None:
    plan = Plan(4, 30, 3, trust="none", schedule=every(6))
    population = Population(TASK, 4, (0, 1), 2, Delays(mean=3.0))
    whole, parts = (
        play_together(population, {"one": plan}, "lazy", [30], lambda share: None, "float64", pooled)["one"]
        for pooled in (True, False)
    )
    np.testing.assert_allclose(whole.regret, parts.regret)
