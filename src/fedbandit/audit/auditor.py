"""Plays games many times, on all cores, and computes what their adversaries proved.

Trials come in chunks of a fixed size. Each chunk has its own seed, derived from the audit's seed, so the result does
not depend on how chunks are spread over processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Literal, NamedTuple, Protocol

import numpy as np

from fedbandit import _validate
from fedbandit._progress import progress_or_bar
from fedbandit.audit import residuals, times_and_sizes
from fedbandit.audit.bounds import epsilon_lower, rates
from fedbandit.audit.calendar_game import Scored
from fedbandit.audit.residuals import Tallies
from fedbandit.audit.times_and_sizes import Envelope
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol.adversaries import Bound

__all__ = ["CONFIDENCE", "Check", "CheckKind", "Examined", "Finding", "Game", "cores", "examined", "ignore_interrupts"]

CONFIDENCE = 0.95
SCORE_ALARMS = 1 - CONFIDENCE - residuals.FALSE_ALARMS - times_and_sizes.FALSE_ALARMS  # what is left for the scores
LONE_RUNS = 100  # single runs of each world, played if times and sizes differ from the plan's
LONE = 1_000_000  # chunk number of the first single run, larger than that of any chunk
CheckKind = Literal["claimed noise", "residuals", "times and sizes", "served apart"]


class Opponent(Protocol):
    """What an audit has to know of an adversary: its name, and what its success refutes."""

    @property
    def name(self) -> str: ...
    @property
    def bound(self) -> Bound: ...


class Game(Protocol):
    """Two worlds, and adversaries that tell them apart."""

    @property
    def adversaries(self) -> Sequence[Opponent]: ...
    @property
    def chunk(self) -> int: ...
    @property
    def silos(self) -> int: ...
    @property
    def planned(self) -> Envelope: ...
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


@dataclass(frozen=True)
class Check:
    """A check in addition to the scores. A failure proves no epsilon: it refutes what the claim rests on."""

    kind: CheckKind
    what: str
    tests: int
    failed: tuple[str, ...]  # failures in words; empty: everything is as claimed


class Examined(NamedTuple):
    """All results of the games of an audit."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]


class _Task(NamedTuple):
    game: int
    world: int
    chunk: int
    trials: int


class _Outcome(NamedTuple):
    task: _Task
    ones: tuple[int, ...]  # by adversary, how often it said "world 1"
    envelopes: tuple[Envelope, ...]
    tallies: Tallies


def examined(
    games: Sequence[Game],
    delta: float,
    trials: int,
    seed: int,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Examined:
    """Every adversary's lower bound, and every check.

    With probability `CONFIDENCE`, all bounds hold and no check fails whose subject is as claimed.
    """
    _validate.count("trials", trials)
    _validate.count("seed", seed, least=0)
    tasks = list(_tasks(games, trials))
    outcomes = []
    with progress_or_bar(progress, "auditing") as report:
        for outcome in _run(games, tasks, seed, workers):
            outcomes.append(outcome)
            report(sum(o.task.trials for o in outcomes) / sum(task.trials for task in tasks))
    outcomes.sort(key=lambda o: o.task)
    by_game = [[o for o in outcomes if o.task.game == index] for index in range(len(games))]
    told = [row for game, own in zip(games, by_game, strict=True) for row in _told(game, own)]
    each = 1 - SCORE_ALARMS / len(told)
    found = tuple(
        Finding(name, bound, hits, alarms, trials, epsilon_lower(rates(hits, alarms, trials, each), delta, bound))
        for name, bound, hits, alarms in told
    )
    return Examined(found, (*_noise_checks(by_game), *_envelope_checks(games, by_game, seed, workers)))


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker process: it is for the process that started the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def cores() -> int:
    """The number of processes that are worth starting."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tasks(games: Sequence[Game], trials: int) -> Iterator[_Task]:
    for index, game in enumerate(games):
        for chunk, start in enumerate(range(0, trials, game.chunk)):
            for world in (0, 1):
                yield _Task(index, world, chunk, min(game.chunk, trials - start))


def _run(games: Sequence[Game], tasks: Sequence[_Task], seed: int, workers: int) -> Iterable[_Outcome]:
    """Play the tasks; outcomes come in any order."""
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
    ones = tuple(int(n) for n in (played.scores > 0).sum(axis=1))
    return _Outcome(task, ones, played.envelopes, played.tallies)


def _told(game: Game, outcomes: Sequence[_Outcome]) -> Iterator[tuple[str, Bound, int, int]]:
    """For each adversary: its name, its bound, and how often it said "world 1" in world 1 and in world 0."""
    for index, one in enumerate(game.adversaries):
        ones = [sum(o.ones[index] for o in outcomes if o.task.world == world) for world in (0, 1)]
        yield one.name, one.bound, ones[1], ones[0]


def _noise_checks(by_game: Sequence[Sequence[_Outcome]]) -> Iterator[Check]:
    """Check the noise of every game, over both worlds together: noise as claimed does not depend on the world."""
    tallies: Tallies = {}
    for number, outcomes in enumerate(by_game):
        game = f" (game {number + 1})" if len(by_game) > 1 else ""
        tallies |= {f"{name}{game}": tally for name, tally in residuals.merged(o.tallies for o in outcomes).items()}
    for name, (tests, failed) in residuals.failures(tallies).items():
        yield Check("residuals", name, tests, failed)


def _envelope_checks(
    games: Sequence[Game], by_game: Sequence[Sequence[_Outcome]], seed: int, workers: int
) -> Iterator[Check]:
    """Check that times and sizes are those of the plan or, if they are not, that both worlds have the same law."""
    for index, (game, outcomes) in enumerate(zip(games, by_game, strict=True)):
        seen = {envelope for o in outcomes for envelope in o.envelopes}
        if not seen:
            continue
        if len(seen) == 1 and (not game.planned or seen == {game.planned}):
            yield Check("times and sizes", "times and sizes of messages", 1, ())
            continue
        runs: Sequence[_Outcome] = outcomes
        if any(len(o.envelopes) < o.task.trials for o in outcomes):  # an envelope for many runs says too little
            lone = [_Task(index, world, LONE + run, 1) for run in range(LONE_RUNS) for world in (0, 1)]
            runs = sorted(_run(games, lone, seed, workers), key=lambda o: o.task)
        low, high = ([e for o in runs if o.task.world == world for e in o.envelopes] for world in (0, 1))
        yield Check("times and sizes", "times and sizes of messages", *times_and_sizes.dependence(low, high))


# A worker process keeps the games that it was started with, so that they are sent once, not with every task.
_remembered: list[tuple[tuple[Game, ...], int]] = []


def _remember(games: tuple[Game, ...], seed: int) -> None:
    ignore_interrupts()
    _remembered[:] = [(games, seed)]


def _play_remembered(task: _Task) -> _Outcome:
    ((games, seed),) = _remembered
    return _play(games, task, seed)
