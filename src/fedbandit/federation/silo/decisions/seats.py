"""The places of decisions in batches, under a calendar that counts decisions.

A decision takes its place when it is answered, before anybody knows its reward, so no reward can take another person's
place. A person over the participation cap takes no place, and so does not move anybody else's. Who takes a place
follows from what is public under such a calendar: who asks, when, and whether they share. So somebody who was set apart
in an earlier term takes one too (`apart`), although their reward counts nowhere.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence

from fedbandit.federation.store.rewards import NOWHERE, OPEN_BATCH
from fedbandit.federation.store.silo_store import SiloStore, Term
from fedbandit.plan import Plan
from fedbandit.schedule import Clock

__all__ = ["Seats"]

log = logging.getLogger(__name__)


class Seats:
    """Gives decisions their places. Under a clock, every reward goes into the open batch, and nothing is counted."""

    def __init__(self, store: SiloStore, plan: Plan, term: Term, cap: int) -> None:
        self.counted = not isinstance(plan.schedule, Clock)
        self.taken = term.seated  # as far as this worker knows
        self._store, self._term, self._times, self._cap = store, term.number, plan.times, cap
        self._fixed = plan.protocol.needs_points  # batches of a planned size: a reward counts in its place or nowhere

    def take(self, people: Sequence[bytes | None]) -> list[int]:
        """Where each decision's reward may count. If the store does not work, decisions go on without a place."""
        if not self.counted:
            return [OPEN_BATCH] * len(people)
        try:
            numbers = self._store.seat(self._term, people, self._cap, durable=self._fixed)
        except Exception as error:
            log.error("decisions without a place: the store does not work: %s", error)
            return [NOWHERE] * len(people)
        self.observe(max((number for number in numbers if number is not None), default=0))
        return [self._place(number) for number in numbers]

    def observe(self, taken: int) -> None:
        """Note how many places are taken, by this worker and others."""
        self.taken = max(self.taken, taken)

    def _place(self, number: int | None) -> int:
        if number is None:
            return NOWHERE
        return bisect_left(self._times, number) if self._fixed else OPEN_BATCH
