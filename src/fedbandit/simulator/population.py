"""The users of some runs, ready for the kernels: one object plays a block of rounds for any set of protocols."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats, Integers
from fedbandit._jit import njit
from fedbandit.simulator import kernels
from fedbandit.simulator.kernels import Beliefs, Fresh, Kept, Local, Table, Tally, Users
from fedbandit.simulator.randomness import DELAY, uniform, user_key
from fedbandit.simulator.tasks import SilosAsRuns, Task

__all__ = ["AT_ONCE", "NEVER", "Delays", "Population"]

NEVER = np.iinfo(np.int64).max  # the wait, in rounds, for a reward that never comes


@dataclass(frozen=True)
class Delays:
    """How many rounds after its decision a reward comes: geometric with a `mean`, 0 for at once; some never come.

    A reward counts in the batch that is open when it comes, as in a live silo. A reward that comes after the `window`
    (in rounds) does not count at all.
    """

    mean: float = 0.0
    missing: float = 0.0
    window: int | None = None

    def __post_init__(self) -> None:
        if self.mean != 0:
            _validate.positive("delay", self.mean)
        if self.missing != 0:
            _validate.within("missing", self.missing, 0, 1)
        if self.window is not None:
            _validate.count("window", self.window, least=0)

    def waits(self, chances: Floats) -> Integers:
        """The rounds until each reward comes, or NEVER, from uniform numbers in [0, 1)."""
        never = chances < self.missing
        spread = np.clip((chances - self.missing) / (1 - self.missing), 0.0, 1.0)
        waits = np.zeros(chances.shape, dtype=np.int64)
        if self.mean != 0:  # P(wait >= k) = (mean / (1 + mean))^k
            waits = (np.log1p(-spread) / np.log(self.mean / (1 + self.mean))).astype(np.int64)
        if self.window is not None:
            never |= waits > self.window
        return np.where(never, NEVER, waits)


AT_ONCE = Delays()


@dataclass(frozen=True)
class Population:
    """All users of some runs of a task, after the `before` rounds of earlier terms."""

    task: Task | SilosAsRuns
    silos: int
    runs: tuple[int, ...]
    seed: int
    delays: Delays = AT_ONCE
    before: int = 0

    def play(self, first_round: int, rounds: int, model: Beliefs | Local, tally: Tally) -> None:
        """Play the rounds `first_round` .. `first_round + rounds - 1`; the task may change only after the last one.

        Silos decide from the synchronised `Beliefs`, or from `Local` models that also hold their own raw data since
        the last sync.
        """
        users = self._users(first_round, rounds)
        source, rewards = self._source(first_round), self.task.responses.for_kernel()
        if isinstance(model, Local) and isinstance(source, Table) and self.task.one_set_per_silo:
            kernels.play_fixed(users, source, rewards, model, tally)
        else:
            kernels.play(users, source, rewards, model, tally)

    def changes(self, rounds: int) -> set[int]:
        """The rounds, out of the first `rounds`, after which the task changes."""
        return {at - self.before for at in self.task.changes(self.before + rounds) if at > self.before}

    def waits(self, first_round: int, rounds: int) -> Integers:
        """The rounds until each user's reward comes, (runs, silos, rounds); they are the same for every protocol."""
        chances = np.empty((len(self.runs), self.silos, rounds))
        runs = np.array(self.runs, dtype=np.int64)
        _fill_chances(np.uint64(self.seed % 2**64), runs, self.before + first_round, chances)
        return self.delays.waits(chances)

    def play_partly(
        self, first_round: int, rounds: int, beliefs: Beliefs, local: Local, kept: Kept, tally: Tally
    ) -> None:
        """`play` if only some visits count: the others are decided from the `Local` models, and go to `kept`."""
        users, rewards = self._users(first_round, rounds), self.task.responses.for_kernel()
        kernels.play_partly(users, self._source(first_round), rewards, beliefs, local, kept, tally)

    def _users(self, first_round: int, rounds: int) -> Users:
        first = self.before + first_round
        return kernels.make_users(self.seed, self.runs, self.silos, first, rounds, self.task.same_in_all_runs)

    def _source(self, round_: int) -> Fresh | Table:
        """The action sets of users from this round on, until the task changes."""
        now = self.before + round_
        return self.task.source(self.seed, self.runs, self.silos, now) if self.task.changes(now) else self._first

    @cached_property
    def _first(self) -> Fresh | Table:
        return self.task.source(self.seed, self.runs, self.silos)


@njit(cache=True)
def _fill_chances(seed: np.uint64, runs: Integers, first: int, out: Floats) -> None:
    for r in range(out.shape[0]):
        for silo in range(out.shape[1]):
            for i in range(out.shape[2]):
                out[r, silo, i] = uniform(user_key(seed, runs[r], silo, first + i, DELAY))
