"""Lemma subG: whether its radius covers theta*, on the paper's users and on users who all lie in one direction."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.bandit.statistics import unpack
from fedbandit.paper.claims.claim import CONFIRMED, OTHER_CONSTANT, REFUTED, PaperClaim
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import composition
from fedbandit.simulator import tasks
from fedbandit.simulator.acting import acting_silos
from fedbandit.simulator.engine import Collector
from fedbandit.simulator.population import Population
from fedbandit.simulator.simulated import SimulatedFederation, runs_noise

__all__ = ["Misses", "on_one_direction", "on_the_papers_users", "radius_claim"]

SHARDS = 16
ASKED = Plan(100, 10_000, 10, privacy=Privacy(1.0, 0.1))


class Misses(NamedTuple):
    """How often ||theta* - theta_t||_(V_t) was larger than beta_t."""

    runs: float  # share of runs with a miss at some sync
    syncs: float  # share of missed syncs, over all runs

    @classmethod
    def of(cls, errors: Floats, radii: Floats) -> Misses:
        """From errors (runs, syncs) and radii (syncs,)."""
        missed = errors > radii
        return cls(float(missed.any(axis=1).mean()), float(missed.mean()))


def on_one_direction(plan: Plan, runs: int, seed: int = 0) -> Misses:
    """All users have only the action e_1, and theta* = e_2: no data tell anything about theta*, only noise decides.

    Every reward is its mean, 0, so U is noise. Then theta* - theta = V^-1 (H theta* - h), as in Step 1 of the proof.
    """
    noise, dim = runs_noise(seed, tuple(range(runs)), "one direction"), plan.dim
    protocol = plan.protocol.pooled()
    state, batch = composition.init(protocol, (runs,)), np.zeros((runs, 1, protocol.width), dtype=np.int64)
    theta, errors = np.eye(dim)[1], np.empty((runs, plan.encoder.size))
    for sync, round_ in enumerate(plan.times):
        state = composition.step(protocol, state, batch, noise)
        h, matrix = unpack(state.prefix, dim)
        shifted = plan.regulariser * np.eye(dim) + matrix  # H
        V = shifted + plan.silos * round_ * np.outer(np.eye(dim)[0], np.eye(dim)[0])
        missing = shifted @ theta - h
        errors[:, sync] = np.sqrt(np.einsum("ri,ri->r", missing, np.linalg.solve(V, missing[..., None])[..., 0]))
    return Misses.of(errors, np.array([plan.radius(round_) for round_ in plan.times]))


def on_the_papers_users(plan: Plan, runs: int, seed: int = 0) -> Misses:
    """The synthetic instance, played lazily."""
    task = tasks.synthetic(plan.dim, 100)
    population = Population(task, plan.silos, tuple(range(runs)), seed)
    federation = SimulatedFederation(plan, runs_noise(seed, population.runs, "the paper's users"))
    collector = Collector(population, [plan], plan.times, SHARDS)
    silos = acting_silos("lazy", population, [federation], "float32")
    truth = np.stack([task.theta(seed, run) for run in population.runs])
    errors = np.empty((runs, len(plan.times)))
    for sync, (first, end) in enumerate(pairwise((0, *plan.times))):
        silos.play(first, end, collector.open(end - first))
        collector.close(end)
        silos.synchronised(0, collector.hand_over(0, federation, end))
        difference = np.linalg.solve(federation.public.model.root, (truth - federation.public.model.theta)[..., None])
        errors[:, sync] = np.linalg.norm(difference[..., 0], axis=-1)  # V^-1 = root root^T
    return Misses.of(errors, np.array([plan.radius(round_) for round_ in plan.times]))


def radius_claim(direction_runs: int = 200, paper_runs: int = 2) -> PaperClaim:
    """Lemma subG states beta_t = ... + sqrt(lambda); its proof needs sqrt(lambda_max) + nu."""
    stated, proven = presets.ldp(ASKED), presets.ldp(ASKED.changed(confidence="proof"))
    alone, covered = on_one_direction(stated, direction_runs), on_one_direction(proven, direction_runs)
    usual = on_the_papers_users(stated, paper_runs)
    ratio = proven.radius(ASKED.rounds) / stated.radius(ASKED.rounds)
    holds = alone.runs <= ASKED.alpha
    return PaperClaim(
        "radius",
        "β_t = sqrt(2 log(2/α) + d log(1 + Mt/(dλ))) + sqrt(λ) covers θ* with probability 1 - α",
        (CONFIRMED if holds else OTHER_CONSTANT) if covered.runs <= ASKED.alpha else REFUTED,
        (
            f"at (1, 0.1), on the paper's users: β_t was too small in {usual.runs:.0%} of {paper_runs} runs",
            f"where all users bring the action e_1 and θ* = e_2: in {alone.runs:.0%} of {direction_runs} runs, at "
            f"{alone.syncs:.1%} of the syncs; α is {ASKED.alpha:.0%}",
            f"with sqrt(λ_max) + ν for sqrt(λ), as the proof has it (confidence 'proof'), in {covered.runs:.0%}; the "
            f"radius at T is then {ratio:.2f} times the stated one",
        ),
    )
