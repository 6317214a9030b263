"""How fast the engine is: ratios to the line-by-line reference, timed side by side in one run.

The reference is the slow loop against which the tests check everything. Machines are shared and noisy, so each pair is
timed back to back several times, and the median ratio is reported.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.paper import reference
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import Every
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.runner import RUNS_AT_ONCE, simulate
from fedbandit.simulator.tasks import Task, synthetic

__all__ = ["engine_figures", "exponents", "machine_shares"]

Play = Callable[[], int]  # plays something, and returns the number of agent-rounds (times protocols)
Draw = Callable[[int], Floats]  # arms -> features of one user (arms, dim)
Contexts = Callable[[int, int, Draw], Floats]  # (round, silo, draw) -> (arms, dim)
Streams = tuple[reference.StreamProtocol, reference.StreamProtocol]  # for the bias and for the covariance
PAIRS = 3
ROUNDS = 2500  # long enough that all regret is recorded at syncs, as in a simulation of the paper's length
BUDGET = Privacy(1.0, 0.1)


def engine_figures(progress: Progress) -> dict[str, Any]:
    """All figures of `fedbandit bench`; `progress` is called with the share that is done."""
    eager, lazy = reference.private_fedlinucb, reference.private_fedlinucb_lazy
    pairs: dict[str, Callable[[], float]] = {
        "lazy_ratio": lambda: _ratio(_engine(1), _slow(lazy)),
        "lazy4_ratio": lambda: _ratio(_engine(4), _slow(lazy)),
        "eager_ratio": lambda: _ratio(_eager(), _slow(eager)),
        "fixed_ratio": lambda: _ratio(_fixed(), _slow_fixed()),
        "vector_sum_ratio": lambda: _ratio(_vector_sum(), _slow_vector_sum()),
    }
    figures: dict[str, Any] = {}
    for done, (name, ratio) in enumerate(pairs.items(), 1):
        figures[name] = ratio()
        progress(done / (len(pairs) + 2))
    figures["agent_rounds_per_s"] = _timed(_engine(1))
    progress((len(pairs) + 1) / (len(pairs) + 2))
    figures["exponents"] = exponents()
    return figures | machine_shares(figures["agent_rounds_per_s"])


# -- the engine ------------------------------------------------------------------------------------------------------


def _engine(protocols: int, silos: int = 100, rounds: int = ROUNDS, arms: int = 100, dim: int = 10) -> Play:
    """Plays lazy plans on fresh contexts, in as many runs as the engine plays at once."""
    base = Plan(silos, rounds, dim, BUDGET)
    names = ("ldp", "silo", "secure-sum", "fed-lin-ucb")[:protocols]
    plans = {name: plan_for(name, base, Every(25)) for name in names}
    task = synthetic(dim, arms)

    def play() -> int:
        simulate(task, plans, runs=RUNS_AT_ONCE)
        return silos * rounds * protocols * RUNS_AT_ONCE

    return play


def _eager() -> Play:
    plan = presets.ldp_eager(Plan(100, ROUNDS, 10, BUDGET))
    return _simulated(synthetic(10, 100), plan)


def _fixed() -> Play:
    plan = presets.ldp_eager(Plan(10, ROUNDS, 57, BUDGET))
    return _simulated(synthetic(57, 908, contexts="fixed"), plan)


def _vector_sum() -> Play:
    return _simulated(synthetic(10, 100), presets.sdp_vector_sum(_vector_sum_plan(ROUNDS), "as_simulated"))


def _vector_sum_plan(rounds: int) -> Plan:
    """A plan whose budget lets P_1D send about a hundred bits per coordinate, few enough for a literal loop."""
    return Plan(10, rounds, 10, Privacy(5.0, 0.1), exploration=1.0)


def _simulated(task: Task, plan: Plan) -> Play:
    def play() -> int:
        simulate(task, {"plan": plan}, runs=RUNS_AT_ONCE)
        return plan.silos * plan.rounds * RUNS_AT_ONCE

    return play


# -- the reference ---------------------------------------------------------------------------------------------------


def _slow(algorithm: Callable[..., reference.Run], rounds: int = 50) -> Play:
    plan = presets.ldp(Plan(100, 10_000, 10, BUDGET))
    return _played(algorithm, plan, rounds, lambda t, i, draw: draw(100), _tree(plan))


def _slow_fixed() -> Play:
    plan = presets.ldp(Plan(10, 10_000, 57, BUDGET))
    arms = [_features(np.random.default_rng(i), 908, 57) for i in range(10)]
    return _played(reference.private_fedlinucb, plan, 50, lambda t, i, draw: arms[i], _tree(plan))


def _slow_vector_sum() -> Play:
    plan = presets.sdp_vector_sum(_vector_sum_plan(50), "as_simulated")
    protocol = plan.protocol
    assert isinstance(protocol, VectorSumProtocol)
    nodes = [protocol.node(k) for k in range(1, plan.encoder.size + 1)]
    by_users = {
        node.users: reference.Parameters(node.grid, node.noise_bits, 0.25, node.subtracted, node.span) for node in nodes
    }

    def streams(generator: np.random.Generator) -> Streams:
        def summed(*shape: int) -> reference.VectorSum:
            users, parameters = protocol.batch_users, by_users.__getitem__
            return reference.VectorSum(plan.silos, users, shape, 1.0, parameters, generator)

        return summed(plan.dim), summed(plan.dim, plan.dim)

    return _played(reference.private_fedlinucb, plan, plan.rounds, lambda t, i, draw: draw(100), streams)


def _tree(plan: Plan) -> Callable[[np.random.Generator], Streams]:
    """Algorithm 2 with the noise of `plan`."""
    sigma, dim = plan.protocol.scales.bias, plan.dim

    def streams(generator: np.random.Generator) -> Streams:
        def symmetric(k: int, i: int) -> Floats:
            upper = np.triu(generator.normal(0, sigma, (dim, dim)))
            return upper + np.triu(upper, 1).T

        bias = reference.PaperTree(plan.silos, lambda k, i: generator.normal(0, sigma, dim))
        return bias, reference.PaperTree(plan.silos, symmetric)

    return streams


def _played(
    algorithm: Callable[..., reference.Run],
    plan: Plan,
    rounds: int,
    contexts: Contexts,
    streams: Callable[[np.random.Generator], Streams],
) -> Play:
    """Plays the reference algorithm for some rounds, with users drawn by numpy in the plainest way."""
    theta = _features(np.random.default_rng(0), 1, plan.dim)[0]

    def play() -> int:
        generator = np.random.default_rng(1)
        last: dict[str, Floats] = {}

        def seen(t: int, i: int) -> Floats:
            last["features"] = contexts(t, i, lambda arms: _features(generator, arms, plan.dim))
            return last["features"]

        def reward(t: int, i: int, a: int) -> float:
            return float(generator.random() < last["features"][a] @ theta)

        bias, covariance = streams(generator)
        algorithm(
            silos=plan.silos,
            rounds=rounds,
            dim=plan.dim,
            batch=25,
            regulariser=plan.regulariser,
            radius=plan.radius,
            contexts=seen,
            reward=reward,
            bias_protocol=bias,
            covariance_protocol=covariance,
        )
        return plan.silos * rounds

    return play


def _features(generator: np.random.Generator, arms: int, dim: int) -> Floats:
    directions = generator.standard_normal((arms, dim - 1))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.asarray(np.column_stack([directions, np.ones(arms)]) / np.sqrt(2))


# -- timing ----------------------------------------------------------------------------------------------------------


def _timed(play: Play) -> float:
    """Agent-rounds (times protocols) per second."""
    start = time.perf_counter()
    done = play()
    return done / (time.perf_counter() - start)


def _ratio(fast: Play, slow: Play) -> float:
    """The median ratio over pairs timed back to back; the first call of `fast` is not timed."""
    fast()
    return median(_timed(fast) / _timed(slow) for _ in range(PAIRS))


def exponents() -> dict[str, float]:
    """How time grows: slopes of log time over log size, for one size at a time with the others fixed.

    Arms and dimensions start where the work on them outweighs the fixed cost per user (random keys, the contribution).
    Below that, time grows more slowly than they do.
    """
    sizes: dict[str, list[int]] = {
        "silos": [100, 400, 1600],
        "rounds": [1000, 4000, 16_000],
        "arms": [400, 1200, 3600],
        "dim": [10, 20, 40],
    }
    return {name: _slope(name, values) for name, values in sizes.items()}


def _slope(name: str, values: list[int]) -> float:
    """The slope for one size. The values take turns, so that a slow minute of the machine does not hit just one."""
    plays = [_engine(1, **{"rounds": 1000} | {name: value}) for value in values]
    for play in plays:
        play()
    turns = [[_seconds(play) for play in plays] for _ in range(PAIRS)]
    return float(np.polyfit(np.log(values), np.log(np.min(turns, axis=0)), 1)[0])


def _seconds(play: Play) -> float:
    start = time.perf_counter()
    play()
    return time.perf_counter() - start


def machine_shares(agent_rounds_per_s: float) -> dict[str, Any]:
    """The machine's own speed, and the share of it that one lazy protocol uses.

    Scoring takes d (d + 1) + 2 d + 2 operations per action. Contexts, 4 (d - 1) bytes per action, are written and read
    in cache; their share of the memory's speed is what storing them would cost.
    """
    arms, dim = 100, 10
    size = 1024
    left = np.random.default_rng(0).random((size, size), dtype=np.float32)
    gemm = max(2 * size**3 / _seconds(lambda: int((left @ left)[0, 0])) for _ in range(PAIRS)) / 1e9
    block = np.zeros(2**25)
    copied = max(2 * block.nbytes / _seconds(lambda: int(block.copy()[0])) for _ in range(PAIRS)) / 1e9
    flops = arms * (dim * (dim + 1) + 2 * dim + 2) * agent_rounds_per_s / 1e9
    drawn = arms * 4 * (dim - 1) * agent_rounds_per_s / 1e9
    return {
        "sgemm_gflops": gemm,
        "scoring_gflops": flops,
        "scoring_share_of_sgemm": flops / gemm,
        "copy_gb_per_s": copied,
        "contexts_gb_per_s": drawn,
        "contexts_share_of_copy": drawn / copied,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
