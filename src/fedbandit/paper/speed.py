"""How fast the engine is: ratios to the line-by-line reference, timed side by side in one run.

The reference is the slow loop that the tests check everything against; it lives in the `tests` folder of a clone.
Machines are shared and noisy, so each pair is timed back to back several times and the median ratio is reported.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fedbandit.paper import presets
from fedbandit.plan import Plan
from fedbandit.planner.catalogue import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.vector_sum import VectorSumProtocol
from fedbandit.schedule import Every
from fedbandit.simulate.runner import RUNS_AT_ONCE, simulate
from fedbandit.simulate.tasks import synthetic

Progress = Callable[[float], None]
PAIRS = 3
ROUNDS = 2500  # long enough that all regret is recorded at synchronisations, as in a simulation of the paper's length
BUDGET = Privacy(1.0, 0.1)


def measured(progress: Progress) -> dict[str, Any]:
    """All figures of `fedbandit bench`."""
    reference = load_reference()
    pairs: dict[str, Callable[[], float]] = {
        "lazy_ratio": lambda: _ratio(_engine(1), _slow(reference, reference.private_fedlinucb_lazy)),
        "lazy4_ratio": lambda: _ratio(_engine(4), _slow(reference, reference.private_fedlinucb_lazy)),
        "eager_ratio": lambda: _ratio(_eager(), _slow(reference, reference.private_fedlinucb)),
        "fixed_ratio": lambda: _ratio(_fixed(), _slow_fixed(reference)),
        "vector_sum_ratio": lambda: _ratio(_vector_sum(), _slow_vector_sum(reference)),
    }
    figures: dict[str, Any] = {}
    for done, (name, ratio) in enumerate(pairs.items()):
        figures[name] = ratio()
        progress((done + 1) / (len(pairs) + 2))
    figures["agent_rounds_per_s"] = _timed(_engine(1))
    progress((len(pairs) + 1) / (len(pairs) + 2))
    figures["exponents"] = exponents()
    figures |= machine_shares(figures["agent_rounds_per_s"])
    return figures


def load_reference() -> Any:
    """The transcription of the paper's algorithms from the tests of this clone."""
    tests = Path(__file__).parents[3] / "tests"
    if not (tests / "reference").is_dir():
        raise ValueError("bench must be run in a clone: it compares with the reference in its folder 'tests'")
    sys.path.insert(0, str(tests))
    try:
        return importlib.import_module("reference")
    finally:
        sys.path.remove(str(tests))


# -- the engine ------------------------------------------------------------------------------------------------------


def _engine(
    protocols: int, silos: int = 100, rounds: int = ROUNDS, arms: int = 100, dim: int = 10
) -> Callable[[], int]:
    """Lazy plans on fresh contexts, as many runs as the engine plays at once; returns agent-rounds times protocols."""
    base = Plan(silos, rounds, dim, BUDGET)
    names = ("ldp", "silo", "secure-sum", "fed-lin-ucb")[:protocols]
    plans = {name: plan_for(name, base, Every(25)) for name in names}
    task = synthetic(dim, arms)

    def play() -> int:
        simulate(task, plans, runs=RUNS_AT_ONCE)
        return silos * rounds * protocols * RUNS_AT_ONCE

    return play


def _eager() -> Callable[[], int]:
    plan = presets.ldp_eager(Plan(100, ROUNDS, 10, BUDGET))
    return _simulated(synthetic(10, 100), plan)


def _fixed() -> Callable[[], int]:
    plan = presets.ldp_eager(Plan(10, ROUNDS, 57, BUDGET))
    return _simulated(synthetic(57, 908, contexts="fixed"), plan)


def _vector_sum() -> Callable[[], int]:
    return _simulated(synthetic(10, 100), presets.sdp_vector_sum(_vector_sum_plan(ROUNDS), "as_simulated"))


def _vector_sum_plan(rounds: int) -> Plan:
    """A budget at which P_1D sends about a hundred bits a coordinate: what a literal loop can still do."""
    return Plan(10, rounds, 10, Privacy(5.0, 0.1), exploration=1.0)


def _simulated(task: Any, plan: Plan) -> Callable[[], int]:
    def play() -> int:
        simulate(task, {"plan": plan}, runs=RUNS_AT_ONCE)
        return plan.silos * plan.rounds * RUNS_AT_ONCE

    return play


# -- the reference ---------------------------------------------------------------------------------------------------


def _slow(reference: Any, algorithm: Any, rounds: int = 50) -> Callable[[], int]:
    plan = presets.ldp(Plan(100, 10_000, 10, BUDGET))
    return _played(reference, algorithm, plan, rounds, lambda t, i, draw: draw(100), _tree(reference, plan))


def _slow_fixed(reference: Any) -> Callable[[], int]:
    plan = presets.ldp(Plan(10, 10_000, 57, BUDGET))
    arms = [_features(np.random.default_rng(i), 908, 57) for i in range(10)]
    return _played(reference, reference.private_fedlinucb, plan, 50, lambda t, i, draw: arms[i], _tree(reference, plan))


def _slow_vector_sum(reference: Any) -> Callable[[], int]:
    plan = presets.sdp_vector_sum(_vector_sum_plan(50), "as_simulated")
    protocol = plan.protocol
    assert isinstance(protocol, VectorSumProtocol)
    nodes = [protocol.node(k) for k in range(1, plan.encoder.steps + 1)]
    by_users = {node.users: reference.Parameters(node.grid, node.noise_bits, 0.25) for node in nodes}

    def protocols(generator: np.random.Generator) -> tuple[Any, Any]:
        shapes = ((plan.dim,), (plan.dim, plan.dim))
        made = [
            reference.VectorSum(plan.silos, protocol.batch_users, shape, 1.0, by_users.__getitem__, generator)
            for shape in shapes
        ]
        return made[0], made[1]

    algorithm = reference.private_fedlinucb
    return _played(reference, algorithm, plan, plan.rounds, lambda t, i, draw: draw(100), protocols)


def _tree(reference: Any, plan: Plan) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    sigma, dim = plan.protocol.scales[0], plan.dim

    def bias(generator: np.random.Generator) -> Any:
        return reference.Tree(plan.silos, lambda k, i: generator.normal(0, sigma, dim))

    def covariance(generator: np.random.Generator) -> Any:
        def symmetric(k: int, i: int) -> Any:
            upper = np.triu(generator.normal(0, sigma, (dim, dim)))
            return upper + np.triu(upper, 1).T

        return reference.Tree(plan.silos, symmetric)

    return lambda generator: (bias(generator), covariance(generator))


def _played(
    reference: Any, algorithm: Any, plan: Plan, rounds: int, contexts: Any, protocols: Any
) -> Callable[[], int]:
    """The reference algorithm for some rounds, users drawn with numpy as one would."""
    theta = _features(np.random.default_rng(0), 1, plan.dim)[0]

    def play() -> int:
        generator = np.random.default_rng(1)
        last: dict[str, Any] = {}

        def draw(arms: int) -> Any:
            return _features(generator, arms, plan.dim)

        def seen(t: int, i: int) -> Any:
            last["features"] = contexts(t, i, draw)
            return last["features"]

        def reward(t: int, i: int, a: int) -> float:
            return float(generator.random() < last["features"][a] @ theta)

        bias, covariance = protocols(generator)
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


def _features(generator: np.random.Generator, arms: int, dim: int) -> Any:
    directions = generator.standard_normal((arms, dim - 1))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.column_stack([directions, np.ones(arms)]) / np.sqrt(2)


# -- timing ----------------------------------------------------------------------------------------------------------


def _timed(play: Callable[[], int]) -> float:
    """Agent-rounds (times protocols) a second."""
    start = time.perf_counter()
    done = play()
    return done / (time.perf_counter() - start)


def _ratio(fast: Callable[[], int], slow: Callable[[], int]) -> float:
    """Median over pairs timed back to back; the first call of either is not timed."""
    fast()
    return median(_timed(fast) / _timed(slow) for _ in range(PAIRS))


def exponents() -> dict[str, float]:
    """How time grows: slopes of log time over log size, one size at a time, the others fixed.

    Arms and dimensions start where the work on them outweighs what a user costs in any case (random keys, the
    contribution): below, time grows more slowly than they do.
    """
    sizes: dict[str, list[int]] = {
        "silos": [100, 400, 1600],
        "rounds": [1000, 4000, 16_000],
        "arms": [400, 1200, 3600],
        "dim": [10, 20, 40],
    }
    return {name: _slope(name, values) for name, values in sizes.items()}


def _slope(name: str, values: list[int]) -> float:
    """The sizes take turns, so that a slow minute of the machine does not fall on one of them alone."""
    plays = [_engine(1, **{"rounds": 1000} | {name: value}) for value in values]
    for play in plays:
        play()
    turns = [[_seconds(play) for play in plays] for _ in range(PAIRS)]
    return float(np.polyfit(np.log(values), np.log(np.min(turns, axis=0)), 1)[0])


def _seconds(play: Callable[[], int]) -> float:
    start = time.perf_counter()
    play()
    return time.perf_counter() - start


def machine_shares(agent_rounds_per_s: float) -> dict[str, Any]:
    """The machine's own speed, and what share of it one lazy protocol uses.

    Scoring takes d (d + 1) + 2 d + 2 operations an action. Contexts, 4 (d - 1) bytes an action, are written and read
    in cache; their share of the memory's speed is what they would cost if they were kept.
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
