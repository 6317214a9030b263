"""Decide and reward in one process: decisions made, and rewards made durable, in groups."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.bench.load import contexts, plan
from fedbandit.federation.silo.serving import Silo

__all__ = ["in_process_figures"]

GROUP, GROUPS = 512, 60  # people in a group; groups


def in_process_figures() -> dict[str, float | None]:
    """`decide_per_s`: decisions with their durable rewards per second, one transaction per group; the median group."""
    people = contexts(GROUP)
    rates = []
    with tempfile.TemporaryDirectory() as folder, Silo.open(Path(folder) / "silo.db", plan()) as silo:
        for _ in range(GROUPS):
            began = time.perf_counter()
            decisions = silo.decide_many(people)
            silo.reward_all([(decision.id, 0.5) for decision in decisions])
            rates.append(GROUP / (time.perf_counter() - began))
    return {"decide_per_s": float(np.median(rates)), "vowpal_wabbit_per_s": _vowpal_wabbit(people)}


def _vowpal_wabbit(people: Floats) -> float | None:
    """Vowpal Wabbit's decisions with their updates per second on the same contexts, or None if it is not installed."""
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        return None
    learner = Workspace("--cb_explore_adf --epsilon 0.05 --quiet")
    lines = [
        [f"|a {' '.join(f'{i}:{value:.6g}' for i, value in enumerate(row))}" for row in actions]
        for actions in people[:100]
    ]
    began = time.perf_counter()
    for actions in lines:
        probabilities = learner.predict(actions)
        chosen = int(np.argmax(probabilities))
        rewarded = list(actions)
        rewarded[chosen] = f"0:-0.5:{probabilities[chosen]} {actions[chosen]}"
        learner.learn(rewarded)
    return len(lines) / (time.perf_counter() - began)
