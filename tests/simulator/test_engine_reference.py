"""The engine against the line-by-line transcription of the paper's pseudo-code, on the very same users.

Given the same noise, decision by decision: the engine reports regret and not actions, but the shortfalls of two
different actions are different numbers, so regret that agrees in every round is the same decision of every silo. With
noise of their own, the two agree in the mean over runs, and a wrong radius or noise is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from fedbandit import simulate
from fedbandit.bandit.statistics import is_diagonal, unpack, width
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import Adaptive, adaptive, every, growing
from fedbandit.simulator.data import ActionTable
from fedbandit.simulator.engine import play_lazy
from fedbandit.simulator.kernels import contexts_of, set_of
from fedbandit.simulator.population import Population
from fedbandit.simulator.randomness import REWARD, uniform, user_key
from fedbandit.simulator.runner import Part
from fedbandit.simulator.simulated import runs_noise
from fedbandit.simulator.tasks import Responses, Synthetic, Tabled, synthetic
from fedbandit.paper.reference import (
    Alt,
    NonPrivate,
    Parameters,
    Run,
    Tree,
    VectorSum,
    dubey,
    private_fedlinucb,
    private_fedlinucb_lazy,
)
from tests.statistical import difference_score

SEED, SILOS, ROUNDS, DIM, ARMS = 5, 3, 40, 3, 6
FINE = 36  # bits: the reference does not round, so neither should the engine, to speak of
TASK = synthetic(DIM, ARMS)
Noise = Callable[[int, int], np.ndarray]


class Users:
    """The users that the engine draws, one by one, in float64."""

    def __init__(self, task: Synthetic | Tabled, run: int, silos: int = SILOS) -> None:
        self.task, self.run = task, run
        self.table = task.prepared(silos) if isinstance(task, Tabled) else None
        self.theta = task.table.theta if isinstance(task, Tabled) else task.theta(SEED, run)
        self.met: dict[tuple[int, int], np.ndarray] = {}

    def contexts(self, t: int, i: int) -> np.ndarray:
        if (t, i) not in self.met:
            self.met[t, i] = self._drawn(t, i).astype(float)
        return self.met[t, i]

    def _drawn(self, t: int, i: int) -> np.ndarray:
        if isinstance(self.task, Tabled):
            assert self.table is not None
            chosen = set_of(SEED, self.run, i, t, self.table)
            first, last = self.task.table.offsets[chosen : chosen + 2]
            return self.task.table.features[first:last]
        if self.task.contexts == "fixed":  # one set a silo, that of its users of round 0
            return contexts_of(SEED, 0, i, 0, ARMS, DIM)
        return contexts_of(SEED, self.run, i, t, ARMS, DIM)

    def mean(self, t: int, i: int, a: int) -> float:
        return float(self.contexts(t, i)[a] @ self.theta)

    def reward(self, t: int, i: int, a: int) -> float:
        key = np.uint64(user_key(np.uint64(SEED), self.run, i, t, REWARD))
        return float(uniform(key) < self.mean(t, i, a))


class SameNoise:
    """What the engine's pooled federation adds, drawn in the same order and given to the first silo."""

    def __init__(self, plan: Plan, name: str, run: int) -> None:
        self.plan, self.protocol = plan, plan.protocol.pooled()
        self.source = runs_noise(SEED, (run,), name)
        self.releases: dict[int, np.ndarray] = {}
        self.rounds: dict[int, np.ndarray] = {}
        cell = np.where(is_diagonal(plan.dim), 1.0, math.sqrt(0.5))[plan.dim :]
        self.schedule_scales = cell * plan.schedule_sigma * 2.0**plan.bits

    def release(self, k: int) -> np.ndarray:
        if k not in self.releases:
            drawn = self.protocol.draw(self.source, (1, 1))[0, 0]
            self.releases[k] = drawn * 2.0**-self.protocol.release_bits
        return self.releases[k]

    def bias(self, k: int, i: int) -> np.ndarray:
        return unpack(self.release(k), self.plan.dim)[0] * (i == 0)

    def covariance(self, k: int, i: int) -> np.ndarray:
        return unpack(self.release(k), self.plan.dim)[1] * (i == 0)

    def schedule(self, t: int, i: int) -> np.ndarray:
        """The private rule's noise: of all silos at once, in every round."""
        if t not in self.rounds:
            self.rounds[t] = self.source.gaussian(self.schedule_scales, (1, self.plan.silos))[0] * 2.0**-self.plan.bits
        packed = np.concatenate([np.zeros(self.plan.dim), self.rounds[t][i]])
        return unpack(packed, self.plan.dim)[1]


class OwnNoise(SameNoise):
    """Fresh noise of every silo with the deviations that the plan promises, from numpy's own normals."""

    def __init__(self, plan: Plan, run: int, factor: float = 1.0) -> None:
        super().__init__(plan, "", run)
        self.generator, self.factor = np.random.default_rng([77, run]), factor
        self.each: dict[tuple[int, int], np.ndarray] = {}

    def of(self, k: int, i: int) -> np.ndarray:
        if (k, i) not in self.each:
            self.each[k, i] = self.generator.normal(size=self.plan.protocol.width) * np.array(self.plan.protocol.scales)
        return self.each[k, i] * self.factor

    def bias(self, k: int, i: int) -> np.ndarray:
        return unpack(self.of(k, i), self.plan.dim)[0]

    def covariance(self, k: int, i: int) -> np.ndarray:
        return unpack(self.of(k, i), self.plan.dim)[1]

    def schedule(self, t: int, i: int) -> np.ndarray:
        cell = self.generator.normal(size=self.schedule_scales.size) * self.schedule_scales * 2.0**-self.plan.bits
        return unpack(np.concatenate([np.zeros(self.plan.dim), cell]), self.plan.dim)[1]


class NoisyPrefix(NonPrivate):
    """Exact sums, and the given noise of prefix k: stands for mechanisms that the paper does not have."""

    def __init__(self, noise: Sequence[np.ndarray]) -> None:
        super().__init__()
        self.noise = iter(noise)

    def analyze(self, messages: Sequence[np.ndarray]) -> np.ndarray:
        return super().analyze(messages) + next(self.noise)


def prefix_noise(plan: Plan, name: str, run: int, pooled: bool) -> list[np.ndarray]:
    """What R, S and A of a plan decode if nobody has any data, with the engine's own draws."""
    protocol, source = plan.protocol.pooled() if pooled else plan.protocol, runs_noise(SEED, (run,), name)
    state, analyzer, decoded = protocol.init((1, protocol.silos)), protocol.init_analyzer((1,)), []
    nothing = np.zeros((1, protocol.silos, protocol.width), dtype=np.int64)
    for users in np.diff((0, *plan.times)):
        batch = protocol.privatise(nothing, int(users) * plan.silos // protocol.silos, source)
        state, messages = protocol.release(state, batch, source)
        analyzer, prefix = protocol.decode(analyzer, protocol.mix(messages, source))
        decoded.append(prefix[0])
    return decoded


def radius_of(plan: Plan, factor: float = 1.0) -> Callable[[int], float]:
    """beta_t: acting lazily, that of the last synchronisation, whose statistics V holds."""
    if plan.acting == "eager" or isinstance(plan.schedule, Adaptive):
        return lambda t: factor * plan.radius(t)
    return lambda t: factor * plan.radius(max([0, *(time for time in plan.times if time < t)]))


def transcription(plan: Plan, users: Users, protocols: tuple[Any, Any], factor: float = 1.0, **fields: Any) -> Run:
    """The paper's pseudo-code for this plan."""
    arguments = {
        "silos": plan.silos,
        "rounds": plan.rounds,
        "dim": plan.dim,
        "regulariser": plan.regulariser,
        "radius": radius_of(plan, factor),
        "contexts": users.contexts,
        "reward": users.reward,
        "mean": users.mean,
        "bias_protocol": protocols[0],
        "covariance_protocol": protocols[1],
    }
    if isinstance(plan.schedule, Adaptive):
        return dubey(threshold=plan.schedule.threshold, **fields, **arguments)
    algorithm = private_fedlinucb if plan.acting == "eager" else private_fedlinucb_lazy
    return algorithm(batch=plan.times, **arguments)


def engine(plan: Plan, task: Synthetic | Tabled, run: int, name: str) -> Any:
    """The engine's run, regret recorded in every round, scores in float64."""
    way = "adaptive" if isinstance(plan.schedule, Adaptive) else plan.acting
    part = Part(task, {name: plan}, (run,), SEED, way, tuple(range(1, plan.rounds + 1)), "float64")
    return part.play()[name]


def assert_same_decisions(played: Any, run: Run) -> None:
    assert run.regret is not None
    np.testing.assert_allclose(np.diff(played.regret[0]), np.diff(run.regret), rtol=0, atol=1e-9)
    assert played.regret[0, 0] == pytest.approx(run.regret[0], abs=1e-9)


def differs(played: Any, run: Run) -> bool:
    assert run.regret is not None
    return bool(np.abs(played.regret[0] - run.regret).max() > 1e-3)


def plan(trust: str = "silo", mechanism: str = "tree", **fields: Any) -> Plan:
    chosen = {"schedule": every(7), "bits": FINE, "privacy": Privacy(20.0, 0.1), **fields}
    chosen["privacy"] = None if trust == "none" else chosen["privacy"]
    return Plan(SILOS, ROUNDS, DIM, trust=trust, mechanism=mechanism, **chosen)


@pytest.mark.parametrize("schedule", [every(7), every(1), every(40), growing(1.4)], ids=str)
@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("contexts", ["fresh", "fixed"])
def test_without_privacy_every_decision_is_the_references(contexts: str, acting: str, schedule: Any) -> None:
    task = synthetic(DIM, ARMS, contexts=contexts)
    made = plan("none", acting=acting, schedule=schedule)
    if made.syncs == 1 and acting == "eager":
        made = made.changed(confidence="practical")  # a silo alone
    played, users = engine(made, task, 2, "x"), Users(task, 2)
    assert_same_decisions(played, transcription(made, users, (NonPrivate(), NonPrivate())))
    assert played.syncs.tolist() == [len(made.times)]
    if contexts == "fresh" or acting == "eager" or made.syncs != 1:  # else nobody learns anything
        assert differs(engine(made, task, 3, "x"), transcription(made, users, (NonPrivate(), NonPrivate())))


@pytest.mark.parametrize("acting", ["lazy", "eager"])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
@pytest.mark.parametrize("run", [0, 4])
def test_algorithm_2_inside_both_ways_of_acting(run: int, calibration: str, acting: str) -> None:
    made = plan(acting=acting, calibration=calibration)
    played, noise = engine(made, TASK, run, "tree"), SameNoise(made, "tree", run)
    assert_same_decisions(
        played, transcription(made, Users(TASK, run), (Tree(SILOS, noise.bias), Tree(SILOS, noise.covariance)))
    )
    other = SameNoise(made, "another name", run)
    assert differs(
        played, transcription(made, Users(TASK, run), (Tree(SILOS, other.bias), Tree(SILOS, other.covariance)))
    )


def test_p_alt() -> None:
    made = plan(decode_at="silo")
    noise = SameNoise(made, "alt", 1)
    run = transcription(made, Users(TASK, 1), (Alt(SILOS, noise.bias), Alt(SILOS, noise.covariance)))
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
    made, users = OTHERS[name], Users(TASK, 1)
    if name == "centred rewards":
        zero_or_one = users.reward
        users.reward = lambda t, i, a: zero_or_one(t, i, a) - 0.5  # type: ignore[method-assign]
    drawn = [unpack(prefix, DIM) for prefix in prefix_noise(made, name, 1, pooled)]
    protocols = NoisyPrefix([bias for bias, _ in drawn]), NoisyPrefix([covariance for _, covariance in drawn])
    world = Population(TASK, SILOS, (1,), SEED)
    record = tuple(range(1, ROUNDS + 1))
    played = play_lazy(world, {name: made}, record, lambda share: None, "float64", pooled)[name]
    assert_same_decisions(played, transcription(made, users, protocols))
    assert played.repaired == 0


def ragged() -> Tabled:
    """Action sets of one to nine actions, several a silo."""
    rng = np.random.default_rng(8)
    sizes = np.array([3, 9, 1, 6, 2, 8, 5])
    x = rng.normal(size=(sizes.sum(), DIM - 1))
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True), np.ones((len(x), 1))]) / math.sqrt(2)
    features, theta = x.astype(np.float32), np.array([0.5, -0.5, math.sqrt(0.5)])
    table = ActionTable(features, np.append(0, np.cumsum(sizes)), features.astype(float) @ theta, theta, "for a test")
    return Tabled(table, Responses("bernoulli"))


@pytest.mark.parametrize("acting", ["lazy", "eager"])
def test_action_sets_of_different_sizes(acting: str) -> None:
    made, task = plan(acting=acting), ragged()
    noise = SameNoise(made, "ragged", 0)
    run = transcription(made, Users(task, 0), (Tree(SILOS, noise.bias), Tree(SILOS, noise.covariance)))
    assert_same_decisions(engine(made, task, 0, "ragged"), run)


@pytest.mark.parametrize("trust", ["none", "silo"])
@pytest.mark.parametrize("threshold", [2.0, 8.0])
def test_dubey_and_pentlands_rule(trust: str, threshold: float) -> None:
    fields = {} if trust == "none" else {"decode_at": "silo"}
    made = plan(trust, acting="eager", schedule=adaptive(threshold), **fields)
    noise = SameNoise(made, "dubey", 2)
    run = transcription(made, Users(TASK, 2), (Alt(SILOS, noise.bias), Alt(SILOS, noise.covariance)))
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
        protocols = Tree(SILOS, noise.bias), Tree(SILOS, noise.covariance)
        found = transcription(made, Users(TASK, run), protocols, schedule_noise=noise.schedule)
        assert_same_decisions(engine(made, TASK, run, "private"), found)
        assert len(found.sync_times) >= 2
        exact_rule = transcription(made, Users(TASK, run), (Tree(SILOS, noise.bias), Tree(SILOS, noise.covariance)))
        moved += exact_rule.sync_times != found.sync_times
    assert moved  # the noise of the rule does change when silos synchronise


# -- noise of their own: the same in the mean

RUNS = 60
LIMIT = float(student.isf(1e-5, RUNS - 1))  # either side


def own_tree(made: Plan, run: int, factor: float) -> tuple[Tree, Tree]:
    noise = OwnNoise(made, run, factor)
    return Tree(SILOS, noise.bias), Tree(SILOS, noise.covariance)


def own_alt(made: Plan, run: int, factor: float) -> tuple[Alt, Alt]:
    noise = OwnNoise(made, run, factor)
    return Alt(SILOS, noise.bias), Alt(SILOS, noise.covariance)


def own_prefix(made: Plan, run: int, factor: float) -> tuple[NoisyPrefix, NoisyPrefix]:
    """B times fresh noise of the deviation the plan promises for the total."""
    total = np.array(made.protocol.scales) * (1.0 if made.trust == "central" else math.sqrt(SILOS))
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
        return Parameters(nodes[n].grid, math.ceil(nodes[n].noise_bits * factor**2), 0.25)

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
        played = transcription(made, Users(TASK, run), protocols(made, run, noise), radius, **fields)
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
