"""The engine against the transcription of the paper's pseudo-code, each with noise of its own.

They agree in the mean over runs, and a wrong radius or wrong noise is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from fedbandit import simulate
from fedbandit.bandit.statistics import unpack, width
from fedbandit.paper.reference import Alt, PaperTree, Parameters, VectorSum
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import adaptive, every
from tests.simulator.transcribed import (
    DIM,
    ROUNDS,
    SEED,
    SILOS,
    TASK,
    NoisyPrefix,
    OwnNoise,
    SameUsers,
    plan,
    transcription,
)
from tests.statistical import difference_score

RUNS = 60

LIMIT = float(student.isf(1e-5, RUNS - 1))  # either side


def own_tree(made: Plan, run: int, factor: float) -> tuple[PaperTree, PaperTree]:
    noise = OwnNoise(made, run, factor)
    return PaperTree(SILOS, noise.bias), PaperTree(SILOS, noise.covariance)


def own_alt(made: Plan, run: int, factor: float) -> tuple[Alt, Alt]:
    noise = OwnNoise(made, run, factor)
    return Alt(SILOS, noise.bias), Alt(SILOS, noise.covariance)


def own_prefix(made: Plan, run: int, factor: float) -> tuple[NoisyPrefix, NoisyPrefix]:
    """B times fresh noise of the deviation the plan promises for the total."""
    total = made.protocol.scales.packed(DIM) * (1.0 if made.trust == "central" else math.sqrt(SILOS))
    users = np.diff((0, *made.times)) if made.trust == "local" else np.ones(made.encoder.size)  # each adds their own
    fresh = np.random.default_rng([78, run]).normal(size=(made.encoder.size, width(DIM)))
    releases = fresh * total * np.sqrt(users)[:, None] * factor
    pairs = [unpack(prefix, DIM) for prefix in made.encoder.decoder @ releases]
    return NoisyPrefix([bias for bias, _ in pairs]), NoisyPrefix([covariance for _, covariance in pairs])


def own_bits(made: Plan, run: int, factor: float) -> tuple[VectorSum, VectorSum]:
    """Literal bits."""
    protocol, generator = made.protocol, np.random.default_rng([79, run])
    assert isinstance(protocol, VectorSumProtocol)
    nodes = {protocol.node(k).users: protocol.node(k) for k in range(1, made.encoder.size + 1)}

    def parameters(n: int) -> Parameters:
        node = nodes[n]
        bits = math.ceil(node.noise_bits * factor**2)
        return Parameters(node.grid, bits, 0.25, node.subtracted + bits - node.noise_bits, node.span)

    streams = [
        VectorSum(SILOS, protocol.batch_users, shape, 1.0, parameters, generator) for shape in ((DIM,), (DIM, DIM))
    ]
    return streams[0], streams[1]


BASE = Plan(SILOS, ROUNDS, DIM, Privacy(8.0, 0.1))

STATISTICAL: dict[str, tuple[Plan, Callable[[Plan, int, float], tuple[Any, Any]]]] = {
    "ldp": (plan_for("ldp", BASE, every(8)), own_tree),
    "ldp-eager": (plan_for("ldp-eager", BASE, every(8)), own_tree),
    "ldp-alt": (plan_for("ldp-alt", BASE, every(8)), own_alt),
    "silo": (plan_for("silo", BASE, every(8)), own_prefix),
    "secure-sum": (plan_for("secure-sum", BASE, every(8)), own_prefix),
    "central": (plan_for("central", BASE, every(8)), own_prefix),
    "local": (plan_for("local", BASE, every(8)), own_prefix),
    "super-agent": (plan_for("super-agent", BASE, every(8)), own_prefix),
    "shuffle": (plan("shuffle", calibration="published", bits=20, schedule=every(8)), own_tree),
    "vector-sum": (plan("vector-sum", calibration="published", bits=20, schedule=every(8)), own_bits),
    "dubey": (plan_for("dubey", BASE).changed(schedule=adaptive(4.0)), own_alt),
    "private-adaptive": (
        plan_for("private-adaptive", BASE).changed(acting="eager", schedule=adaptive(6.0, True)),
        own_tree,
    ),
}


def reference_regret(name: str, runs: int, radius: float = 1.0, noise: float = 1.0) -> np.ndarray:
    """Time-averaged group regret of the transcription, run by run, on the users of the engine's runs."""
    made, protocols = STATISTICAL[name]
    finals = []
    for run in range(runs):
        fields: dict[str, Any] = {}
        if name == "private-adaptive":
            fields["schedule_noise"] = OwnNoise(made, 1000 + run).schedule
        played = transcription(made, SameUsers(TASK, run), protocols(made, run, noise), radius, **fields)
        assert played.regret is not None
        finals.append(played.regret[-1] / ROUNDS)
    return np.array(finals)


def runs_of(name: str) -> int:
    return RUNS // 3 if name == "vector-sum" else RUNS  # literal bits are slow


@pytest.fixture(scope="module")
def engine_regret() -> dict[str, np.ndarray]:
    result = simulate(TASK, {name: made for name, (made, _) in STATISTICAL.items()}, RUNS, SEED)
    return {name: result.final(name)[: runs_of(name)] for name in STATISTICAL}


@pytest.mark.parametrize("name", STATISTICAL)
def test_regret_agrees_in_the_mean(name: str, engine_regret: dict[str, np.ndarray]) -> None:
    assert abs(difference_score(engine_regret[name], reference_regret(name, runs_of(name)))) < LIMIT


@pytest.mark.parametrize("name", STATISTICAL)
def test_a_wrong_radius_would_be_noticed(name: str, engine_regret: dict[str, np.ndarray]) -> None:
    wrong = {"ldp": 2.5, "ldp-alt": 2.5, "local": 4.0}.get(name, 1.5)  # where noise hides more, more must be wrong
    assert abs(difference_score(engine_regret[name], reference_regret(name, runs_of(name), radius=wrong))) > LIMIT


@pytest.mark.parametrize("name", ["ldp", "silo", "local", "super-agent"])
def test_wrong_noise_would_be_noticed(name: str, engine_regret: dict[str, np.ndarray]) -> None:
    assert abs(difference_score(engine_regret[name], reference_regret(name, runs_of(name), noise=4.0))) > LIMIT
