"""Playing games many times, over all cores, and saying what their adversaries proved.

Trials come in chunks of a fixed size, each with a seed of its own derived from the audit's: how the chunks are spread
over processes changes nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple, Protocol

import numpy as np

from fedbandit import _validate
from fedbandit.audit.bounds import epsilon_lower, rates
from fedbandit.audit.calendar_game import Envelope, Scored
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol.adversaries import Bound

__all__ = ["CONFIDENCE", "ENVELOPE", "Finding", "Game", "cores", "findings"]

CONFIDENCE = 0.95
ENVELOPE = "times and sizes of messages"


class Game(Protocol):
    """Two worlds, and adversaries that tell them apart."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def bounds(self) -> tuple[Bound, ...]: ...
    @property
    def chunk(self) -> int: ...
    @property
    def silos(self) -> int: ...
    def play(self, world: int, trials: int, noise: NoiseSource) -> Scored: ...


@dataclass(frozen=True)
class Finding:
    """What one adversary proved: epsilon is at least `epsilon_lower`, at the claimed delta."""

    adversary: str
    bound: Bound
    hits: int  # "world 1" in runs of world 1
    alarms: int  # "world 1" in runs of world 0
    trials: int  # runs of each world
    epsilon_lower: float


class _Task(NamedTuple):
    game: int
    world: int
    chunk: int
    trials: int


class _Outcome(NamedTuple):
    task: _Task
    ones: tuple[int, ...]  # by adversary: how often it said "world 1"
    envelope: Envelope


def findings(
    games: Sequence[Game],
    delta: float,
    trials: int,
    seed: int,
    workers: int = 1,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Finding]:
    """Every adversary's lower bound; all of them together hold with probability `CONFIDENCE`."""
    _validate.count("trials", trials)
    _validate.count("seed", seed, least=0)
    tasks = list(_tasks(games, trials))
    outcomes = []
    for outcome in _run(games, tasks, seed, workers):
        outcomes.append(outcome)
        progress(sum(o.task.trials for o in outcomes) / sum(task.trials for task in tasks))
    outcomes.sort(key=lambda o: o.task)
    told = [
        row for index, game in enumerate(games) for row in _told(game, [o for o in outcomes if o.task.game == index])
    ]
    each = 1 - (1 - CONFIDENCE) / len(told)
    return [
        Finding(name, bound, hits, alarms, trials, epsilon_lower(rates(hits, alarms, trials, each), delta, bound))
        for name, bound, hits, alarms in told
    ]


def cores() -> int:
    """How many processes are worth starting."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tasks(games: Sequence[Game], trials: int) -> Iterator[_Task]:
    for index, game in enumerate(games):
        for chunk, start in enumerate(range(0, trials, game.chunk)):
            for world in (0, 1):
                yield _Task(index, world, chunk, min(game.chunk, trials - start))


def _run(games: Sequence[Game], tasks: Sequence[_Task], seed: int, workers: int) -> Iterable[_Outcome]:
    """Outcomes, in whatever order they are ready."""
    if workers == 1:
        yield from (_play(games, task, seed) for task in tasks)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, _remember, (tuple(games), seed)) as pool:
        futures = [pool.submit(_play_remembered, task) for task in tasks]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _play(games: Sequence[Game], task: _Task, seed: int) -> _Outcome:
    seeds = np.random.SeedSequence(seed, spawn_key=(task.game, task.world, task.chunk))
    noise = SimulatedNoise(np.random.default_rng(seeds))
    played = games[task.game].play(task.world, task.trials, noise)
    return _Outcome(task, tuple(int(n) for n in (played.scores > 0).sum(axis=1)), played.envelope)


def _told(game: Game, outcomes: Sequence[_Outcome]) -> Iterator[tuple[str, Bound, int, int]]:
    """By adversary: how often it said "world 1" in world 1, and in world 0. The last one looks at envelopes only."""
    for index, (name, bound) in enumerate(zip(game.names, game.bounds, strict=True)):
        ones = [sum(o.ones[index] for o in outcomes if o.task.world == world) for world in (0, 1)]
        yield name, bound, ones[1], ones[0]
    usual = outcomes[0].envelope  # of the first chunk of world 0
    if usual:
        unusual = [sum(o.task.trials for o in outcomes if o.task.world == w and o.envelope != usual) for w in (0, 1)]
        yield ENVELOPE, "dp", unusual[1], unusual[0]


# A worker process keeps the games it is started with, so that they are sent once and not with every task.
_remembered: list[tuple[tuple[Game, ...], int]] = []


def _remember(games: tuple[Game, ...], seed: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    _remembered[:] = [(games, seed)]


def _play_remembered(task: _Task) -> _Outcome:
    ((games, seed),) = _remembered
    return _play(games, task, seed)
