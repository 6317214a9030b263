"""The users of some runs, ready for the kernels: one object that plays a block of rounds for any set of protocols."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedbandit.simulator import kernels
from fedbandit.simulator.kernels import Beliefs, Fresh, Kept, Local, Table, Tally, Users
from fedbandit.simulator.tasks import Task

__all__ = ["Population"]


@dataclass(frozen=True)
class Population:
    """All users of the runs `runs` of a task."""

    task: Task
    silos: int
    runs: tuple[int, ...]
    seed: int

    def play(self, first_round: int, rounds: int, model: Beliefs | Local, tally: Tally) -> None:
        """Rounds `first_round` .. `first_round + rounds - 1`.

        Silos decide from the synchronised `Beliefs`, or from `Local` models that also hold their own raw data since
        the last sync.
        """
        users = self._users(first_round, rounds)
        source, rewards = self._source, self.task.responses.for_kernel()
        if isinstance(model, Local) and isinstance(source, Table) and self.task.one_set_per_silo:
            kernels.play_fixed(users, source, rewards, model, tally)
        else:
            kernels.play(users, source, rewards, model, tally)

    def play_partly(
        self, first_round: int, rounds: int, beliefs: Beliefs, local: Local, kept: Kept, tally: Tally
    ) -> None:
        """The same where only some visits count: the others are decided from the `Local` models, and go to `kept`."""
        users, rewards = self._users(first_round, rounds), self.task.responses.for_kernel()
        kernels.play_partly(users, self._source, rewards, beliefs, local, kept, tally)

    def _users(self, first_round: int, rounds: int) -> Users:
        return kernels.make_users(self.seed, self.runs, self.silos, first_round, rounds, self.task.same_in_all_runs)

    @cached_property
    def _source(self) -> Fresh | Table:
        return self.task.source(self.seed, self.runs, self.silos)
