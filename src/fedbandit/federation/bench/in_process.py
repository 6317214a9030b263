"""Decide and reward in one process: a decision at a time, rewards durable in groups."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedbandit.federation.silo import Silo
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

DIM, ARMS = 10, 100
GROUP, GROUPS = 512, 60


def in_process_figures() -> dict[str, float | None]:
    """`decide_per_s`: decide + durable reward a second, a group of rewards to a transaction; the median group."""
    plan = Plan(silos=3, rounds=10_000_000, dim=DIM, privacy=Privacy(1.0, 1e-5))
    contexts = np.random.default_rng(0).standard_normal((GROUP, ARMS, DIM))
    contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True)
    rates = []
    with tempfile.TemporaryDirectory() as folder, Silo.open(Path(folder) / "silo.db", plan) as silo:
        for _ in range(GROUPS):
            began = time.perf_counter()
            decisions = silo.decide_many(contexts)
            silo.reward_all([(decision.id, 0.5) for decision in decisions])
            rates.append(GROUP / (time.perf_counter() - began))
    return {"decide_per_s": float(np.median(rates)), "vowpal_wabbit_per_s": _vowpal_wabbit(contexts)}


def _vowpal_wabbit(contexts: NDArray[np.float64]) -> float | None:
    """Vowpal Wabbit's decide + update a second on the same contexts, or None where it is not installed."""
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        return None
    learner = Workspace("--cb_explore_adf --epsilon 0.05 --quiet")
    lines = [
        [f"|a {' '.join(f'{i}:{value:.6g}' for i, value in enumerate(row))}" for row in actions]
        for actions in contexts[:100]
    ]
    began = time.perf_counter()
    for actions in lines:
        probabilities = learner.predict(actions)
        chosen = int(np.argmax(probabilities))
        rewarded = list(actions)
        rewarded[chosen] = f"0:-0.5:{probabilities[chosen]} {actions[chosen]}"
        learner.learn(rewarded)
    return len(lines) / (time.perf_counter() - began)
