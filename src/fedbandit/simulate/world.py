"""The users of some runs, ready for the kernels: one object that plays a block of rounds for any set of protocols."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedbandit.simulate.kernels import (
    play_eager_fixed,
    play_eager_fresh,
    play_eager_table,
    play_lazy_fresh,
    play_lazy_table,
)
from fedbandit.simulate.kernels.layout import Beliefs, Fresh, Local, Table, Tally, Users, make_users
from fedbandit.simulate.tasks import Synthetic, Task


@dataclass(frozen=True)
class World:
    """All users of the runs `runs` of a task."""

    task: Task
    silos: int
    runs: tuple[int, ...]
    seed: int

    def play_lazy(self, first_round: int, rounds: int, beliefs: Beliefs, tally: Tally) -> None:
        """Rounds `first_round` .. `first_round + rounds - 1`, everybody deciding from the synchronised model."""
        users, rewards = self._users(first_round, rounds), self.task.responses.for_kernel()
        if self._fresh is not None:
            play_lazy_fresh(users, self._fresh, rewards, beliefs, tally)
        else:
            play_lazy_table(users, self._table, rewards, beliefs, tally)

    def play_eager(self, first_round: int, rounds: int, local: Local, tally: Tally) -> None:
        """The same, every silo also using its own raw data since the last synchronisation."""
        users, rewards = self._users(first_round, rounds), self.task.responses.for_kernel()
        if self._fresh is not None:
            play_eager_fresh(users, self._fresh, rewards, local, tally)
        elif isinstance(self.task, Synthetic):  # fixed contexts: one set a silo
            play_eager_fixed(users, self._table, rewards, local, tally)
        else:
            play_eager_table(users, self._table, rewards, local, tally)

    def _users(self, first_round: int, rounds: int) -> Users:
        same = isinstance(self.task, Synthetic) and self.task.same_in_all_runs
        return make_users(self.seed, self.runs, self.silos, first_round, rounds, same)

    @cached_property
    def _fresh(self) -> Fresh | None:
        if isinstance(self.task, Synthetic) and self.task.contexts == "fresh":
            return self.task.fresh(self.seed, self.runs)
        return None

    @cached_property
    def _table(self) -> Table:
        if isinstance(self.task, Synthetic):
            return self.task.fixed(self.seed, self.silos)
        return self.task.prepared(self.silos)
