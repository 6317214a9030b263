"""Decisions and durable rewards in one process, in groups or one by one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.bench.load import contexts, plan
from fedbandit.federation.silo.serving import Silo

__all__ = ["in_process_figures"]

GROUP, GROUPS, TURNS = 512, 8, 40  # people in a group; groups in a turn, all of different people; turns
ALONE = 64  # people whose rewards are stored one per transaction
PEOPLE = 100  # people for whom Vowpal Wabbit decides per turn


def in_process_figures() -> dict[str, float | None]:
    """Decisions with their durable rewards per second, also compared with Vowpal Wabbit.

    `decide_per_s`: decided and stored in groups of 512. `one_by_one_per_s`: the same, but each decision by itself.
    `durable_one_by_one_per_s`: each reward by itself too, which measures the disk. `in_process_vw_ratio` and
    `one_by_one_vw_ratio` are the first two over Vowpal Wabbit's rate. All are measured in turns, and the median turn is
    taken. A turn has several groups of different people, as a silo meets them one after the other. A single group would
    find the caches as the turn before has left them.
    """
    people = contexts(GROUPS * GROUP)
    groups = [people[at : at + GROUP] for at in range(0, len(people), GROUP)]
    with tempfile.TemporaryDirectory() as folder, Silo.open(Path(folder) / "silo.db", plan()) as silo:
        silo.quicken()
        ways: dict[str, Callable[[], int]] = {
            "decide_per_s": lambda: sum(_grouped(silo, group) for group in groups),
            "one_by_one_per_s": lambda: _one_by_one(silo, people[:GROUP]),
            "durable_one_by_one_per_s": lambda: _each_durable(silo, people),
        }
        rival = _vowpal_wabbit(people[:PEOPLE])
        if rival is not None:
            ways["vowpal_wabbit_per_s"] = rival
        rates = {name: float(np.median(turns)) for name, turns in _in_turns(ways).items()}
    rival_rate = rates.get("vowpal_wabbit_per_s")
    return {
        **rates,
        "vowpal_wabbit_per_s": rival_rate,
        "in_process_vw_ratio": rates["decide_per_s"] / rival_rate if rival_rate else None,
        "one_by_one_vw_ratio": rates["one_by_one_per_s"] / rival_rate if rival_rate else None,
    }


def _in_turns(ways: dict[str, Callable[[], int]]) -> dict[str, list[float]]:
    """People per second of each way, turn by turn."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            began = time.perf_counter()
            rates[name].append(way() / (time.perf_counter() - began))
    return rates


def _grouped(silo: Silo, people: Floats) -> int:
    silo.reward_all([(decision.id, 0.5) for decision in silo.decide_many(people)])
    return len(people)


def _one_by_one(silo: Silo, people: Floats) -> int:
    silo.reward_all([(silo.decide(actions).id, 0.5) for actions in people])
    return len(people)


def _each_durable(silo: Silo, people: Floats) -> int:
    for actions in people[:ALONE]:
        silo.reward(silo.decide(actions).id, 0.5)
    return ALONE


def _vowpal_wabbit(people: Floats) -> Callable[[], int] | None:
    """Vowpal Wabbit's decisions with their updates, on the same contexts; None if it is not installed."""
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        return None
    learner = Workspace("--cb_explore_adf --epsilon 0.05 --quiet")
    lines = [
        [f"|a {' '.join(f'{i}:{value:.6g}' for i, value in enumerate(row))}" for row in actions] for actions in people
    ]

    def play() -> int:
        for actions in lines:
            _decide_and_learn(learner.predict, learner.learn, actions)
        return len(lines)

    return play


def _decide_and_learn(
    predict: Callable[[list[str]], Sequence[float]], learn: Callable[[list[str]], None], actions: list[str]
) -> None:
    probabilities = predict(actions)
    chosen = int(np.argmax(probabilities))
    rewarded = list(actions)
    rewarded[chosen] = f"0:-0.5:{probabilities[chosen]} {actions[chosen]}"
    learn(rewarded)
