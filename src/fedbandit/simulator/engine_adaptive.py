"""Schedules that the data decide: Dubey & Pentland's determinant rule, and the rule on noisy covariances.

Rounds are played one by one, and each run synchronises at times of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedbandit.plan import Plan
from fedbandit.simulator.acting import Precision, acting_silos
from fedbandit.simulator.engine import Collector, Played, Progress
from fedbandit.simulator.population import Population
from fedbandit.simulator.simulated import SimulatedFederation, runs_noise

__all__ = ["play_adaptive"]

REPORTED = 100  # rounds between two reports of progress


def play_adaptive(
    population: Population,
    name: str,
    plan: Plan,
    record: Sequence[int],
    progress: Progress,
    precision: Precision = "float32",
) -> Played:
    """One plan with an adaptive schedule, in the single run of the population. Everybody synchronises at the end."""
    lead = (1, population.silos)  # the runs' axis is the first of every draw of noise
    federation = SimulatedFederation(plan, runs_noise(population.seed, population.runs, name))
    collector = Collector(population, [plan], record, shards=population.silos)
    playing = acting_silos(plan.acting, population, [federation], precision)
    waiting = plan.rule.init(lead)
    for round_ in range(1, record[-1] + 1):
        tally = collector.open(1)
        covariances = tally.sums[0, ..., plan.dim :]  # (1, silos, entries) since the last sync
        before = covariances.copy()
        playing.play(round_ - 1, round_, tally)
        collector.close(round_)
        root = federation.public.model.root[:, None]
        waiting, asking = plan.rule.step(waiting, covariances - before, root, federation.noise)
        if asking.any() or round_ == record[-1]:
            playing.synchronised(0, collector.hand_over(0, federation, round_))
            waiting = plan.rule.init(lead)
        if round_ % REPORTED == 0:
            progress(round_ / record[-1])
    return collector.played(0, federation)
