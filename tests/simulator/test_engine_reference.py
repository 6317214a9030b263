"""The engine against the line-by-line transcription of the paper's pseudo-code, on the very same users and noise.

Decision by decision: the engine reports regret and not actions, but the shortfalls of two different actions are
different numbers, so regret that agrees in every round is the same decision of every silo.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedbandit.bandit.statistics import unpack
from fedbandit.paper.reference import Alt, NonPrivate, PaperTree, Run
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import composition
from fedbandit.protocol.guarantee import Acting, Calibration
from fedbandit.schedule import Adaptive, adaptive, every, growing
from fedbandit.simulator.data import ActionTable
from fedbandit.simulator.engine import Played, play_together
from fedbandit.simulator.population import Population
from fedbandit.simulator.runner import Job, Way
from fedbandit.simulator.simulated import runs_noise
from fedbandit.simulator.tasks import Contexts, Responses, Synthetic, Tabled, synthetic
from tests.simulator.transcribed import (
    ARMS,
    DIM,
    ROUNDS,
    SEED,
    SILOS,
    TASK,
    NoisyPrefix,
    SameNoise,
    SameUsers,
    plan,
    transcription,
)


def prefix_noise(plan: Plan, name: str, run: int, pooled: bool) -> list[np.ndarray]:
    """What R, S and A of a plan decode if nobody has any data, with the engine's own draws."""
    protocol, source = plan.protocol.pooled() if pooled else plan.protocol, runs_noise(SEED, (run,), name)
    state, decoded = composition.init(protocol, (1,)), []
    nothing = np.zeros((1, protocol.silos, protocol.width), dtype=np.int64)
    for users in np.diff((0, *plan.times)):
        batch = protocol.privatise(nothing, int(users) * plan.silos // protocol.silos, source)
        state = composition.step(protocol, state, batch, source)
        decoded.append(state.prefix[0])
    return decoded


def engine(plan: Plan, task: Synthetic | Tabled, run: int, name: str) -> Played:
    """The engine's run, regret recorded in every round, scores in float64."""
    way: Way = "adaptive" if isinstance(plan.schedule, Adaptive) else plan.acting
    job = Job(task, {name: plan}, (run,), SEED, way, tuple(range(1, plan.rounds + 1)), "float64")
    return job.play()[name]


def trees(noise: SameNoise) -> tuple[PaperTree, PaperTree]:
    """Algorithm 2 for both streams, with the engine's own noise."""
    return PaperTree(SILOS, noise.bias), PaperTree(SILOS, noise.covariance)


def assert_same_decisions(played: Played, run: Run) -> None:
    assert run.regret is not None
    np.testing.assert_allclose(np.diff(played.regret[0]), np.diff(run.regret), rtol=0, atol=1e-9)
    assert played.regret[0, 0] == pytest.approx(run.regret[0], abs=1e-9)


def differs(played: Played, run: Run) -> bool:
    assert run.regret is not None
    return bool(np.abs(played.regret[0] - run.regret).max() > 1e-3)


@pytest.mark.parametrize("schedule", [every(7), every(1), every(40), growing(1.4)], ids=str)
@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("contexts", ["fresh", "fixed"])
def test_without_privacy_every_decision_is_the_references(contexts: Contexts, acting: Acting, schedule: Any) -> None:
    task = synthetic(DIM, ARMS, contexts=contexts)
    made = plan("none", acting=acting, schedule=schedule)
    if made.syncs == 1 and acting == "eager":
        made = made.changed(confidence="practical")  # a silo alone
    played, users = engine(made, task, 2, "x"), SameUsers(task, 2)
    assert_same_decisions(played, transcription(made, users, (NonPrivate(), NonPrivate())))
    assert played.syncs.tolist() == [len(made.times)]
    if contexts == "fresh" or acting == "eager" or made.syncs != 1:  # else nobody learns anything
        assert differs(engine(made, task, 3, "x"), transcription(made, users, (NonPrivate(), NonPrivate())))


@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
@pytest.mark.parametrize("run", [0, 4])
def test_algorithm_2_inside_both_ways_of_acting(run: int, calibration: Calibration, acting: Acting) -> None:
    made = plan(acting=acting, calibration=calibration)
    played, noise = engine(made, TASK, run, "tree"), SameNoise(made, "tree", run)
    assert_same_decisions(
        played,
        transcription(made, SameUsers(TASK, run), trees(noise)),
    )
    other = SameNoise(made, "another name", run)
    assert differs(
        played,
        transcription(made, SameUsers(TASK, run), (PaperTree(SILOS, other.bias), PaperTree(SILOS, other.covariance))),
    )


def test_p_alt() -> None:
    made = plan(decode_at="silo")
    noise = SameNoise(made, "alt", 1)
    run = transcription(made, SameUsers(TASK, 1), (Alt(SILOS, noise.bias), Alt(SILOS, noise.covariance)))
    assert_same_decisions(engine(made, TASK, 1, "alt"), run)


OTHERS = {
    "silo, toeplitz": plan(mechanism="toeplitz", bits=30),
    "silo, blt": plan(mechanism="blt", bits=30),
    "shuffle": plan("shuffle", calibration="published"),
    "secure-sum": plan("secure-sum", "toeplitz", bits=30),
    "central": plan("central", "toeplitz", bits=30),
    "local": plan("local", "batches"),
    "centred rewards": plan("central", centre=0.5),
}


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "silo by silo"])
@pytest.mark.parametrize("name", OTHERS)
def test_every_trust_and_mechanism_decides_from_exact_sums_plus_its_noise(name: str, pooled: bool) -> None:
    made, users = OTHERS[name], SameUsers(TASK, 1)
    if name == "centred rewards":
        zero_or_one = users.reward
        users.reward = lambda t, i, a: zero_or_one(t, i, a) - 0.5  # type: ignore[method-assign]
    drawn = [unpack(prefix, DIM) for prefix in prefix_noise(made, name, 1, pooled)]
    protocols = NoisyPrefix([bias for bias, _ in drawn]), NoisyPrefix([covariance for _, covariance in drawn])
    population = Population(TASK, SILOS, (1,), SEED)
    record = tuple(range(1, ROUNDS + 1))
    played = play_together(population, {name: made}, "lazy", record, lambda share: None, "float64", pooled)[name]
    assert_same_decisions(played, transcription(made, users, protocols))
    assert played.repaired == 0


def ragged() -> Tabled:
    """Action sets of one to nine actions, several per silo."""
    rng = np.random.default_rng(8)
    sizes = np.array([3, 9, 1, 6, 2, 8, 5])
    x = rng.normal(size=(sizes.sum(), DIM - 1))
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True), np.ones((len(x), 1))]) / math.sqrt(2)
    features, theta = x.astype(np.float32), np.array([0.5, -0.5, math.sqrt(0.5)])
    table = ActionTable(features, np.append(0, np.cumsum(sizes)), features.astype(float) @ theta, theta, "for a test")
    return Tabled(table, Responses("bernoulli"))


@pytest.mark.parametrize("acting", ["lazy", "eager"])
def test_action_sets_of_different_sizes(acting: Acting) -> None:
    made, task = plan(acting=acting), ragged()
    noise = SameNoise(made, "ragged", 0)
    run = transcription(made, SameUsers(task, 0), trees(noise))
    assert_same_decisions(engine(made, task, 0, "ragged"), run)


@pytest.mark.parametrize("trust", ["none", "silo"])
@pytest.mark.parametrize("threshold", [2.0, 8.0])
def test_dubey_and_pentlands_rule(trust: str, threshold: float) -> None:
    fields: dict[str, Any] = {} if trust == "none" else {"decode_at": "silo"}
    made = plan(trust, acting="eager", schedule=adaptive(threshold), **fields)
    noise = SameNoise(made, "dubey", 2)
    run = transcription(made, SameUsers(TASK, 2), (Alt(SILOS, noise.bias), Alt(SILOS, noise.covariance)))
    played = engine(made, TASK, 2, "dubey")
    assert_same_decisions(played, run)
    ends = run.sync_times[-1:] == [ROUNDS]
    assert len(run.sync_times) >= 1
    assert played.syncs.tolist() == [len(run.sync_times) + (not ends)]  # and once at the end


def test_the_rule_reads_the_data_also_where_silos_act_lazily() -> None:
    lazy, eager = (plan("none", acting=acting, schedule=adaptive(2.0)) for acting in ("lazy", "eager"))
    assert engine(lazy, TASK, 2, "x").syncs[0] >= engine(eager, TASK, 2, "x").syncs[0] - 2


def test_the_rule_on_noisy_covariances() -> None:
    """eq. (det-new), in the eager algorithm that the paper restates."""
    made = plan(acting="eager", schedule=adaptive(3.0, private=True), privacy=Privacy(400.0, 0.4))
    moved = 0
    for run in range(4):
        noise = SameNoise(made, "private", run)
        protocols = trees(noise)
        found = transcription(made, SameUsers(TASK, run), protocols, schedule_noise=noise.schedule)
        assert_same_decisions(engine(made, TASK, run, "private"), found)
        assert len(found.sync_times) >= 2
        exact_rule = transcription(made, SameUsers(TASK, run), trees(noise))
        moved += exact_rule.sync_times != found.sync_times
    assert moved  # the noise of the rule does change when silos synchronise
