"""A silo's ticks: close the batch that is due, draw its release, put both on disk with what it spends."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from fedbandit.federation import book, messages, releasing
from fedbandit.federation.calendar import SteadyClock, calendar
from fedbandit.federation.counter import DecisionCounter
from fedbandit.federation.noise import ExactNoise
from fedbandit.federation.states import IllegalEvent, ReleaseState
from fedbandit.federation.store import SiloStore
from fedbandit.federation.store.silo import Term
from fedbandit.plan import Plan
from fedbandit.protocol.base import Message

# What goes on the wire for a release that was just drawn, and its sealed bytes; None if that is not known yet.
Sealer = Callable[[int, Message], tuple[bytes, bytes] | None]
LOOK_AGAIN = 0.5  # seconds after which other workers' decisions are looked up


class Ticker:
    """One tick at a time, in order.

    A batch that is due stays open for `settle` seconds more, whatever comes in; the last one for `settle_last`, since
    a reward that comes after it is lost.
    """

    def __init__(
        self,
        store: SiloStore,
        plan: Plan,
        term: Term,
        counter: DecisionCounter,
        *,
        silo: str,
        settle: float,
        settle_last: float,
        keep_raw: bool,
    ) -> None:
        self.open_step = term.open_step
        self.sealer: Sealer = lambda step, message: None
        self._store, self._plan, self._term, self._counter = store, plan, term.number, counter
        self._silo, self._keep_raw = silo, keep_raw
        self._settle, self._settle_last = settle, max(settle, settle_last)
        self._calendar, self._clock, self._noise = calendar(plan, term.started), SteadyClock(), ExactNoise()
        self._one_at_a_time = threading.Lock()
        self._due_since = math.inf
        self._looked = time.monotonic()
        self._unfinished = True  # a crash may have left a batch closed, not drawn

    def due(self) -> bool:
        """Whether a look at the calendar is worth a transaction: by the decisions known here, or, if other workers
        count decisions too, now and then."""
        if self._unfinished:
            return True
        if self._store.engine.shared and time.monotonic() - self._looked > LOOK_AGAIN:
            return True
        return self._ticks(self._counter.total) > self.open_step

    def release(self) -> list[int]:
        """Close the batches that are due and draw their releases; returns their steps."""
        with self._one_at_a_time:
            self._unfinished, self._looked = True, time.monotonic()
            with self._counter.take() as pending:
                self.open_step = self._store.tick(self._term, *pending, self._settled)
            undrawn = self._store.in_state(self._term, ReleaseState.CLOSED)
            drawn = [step for step in undrawn if self._draw(step)]
            self._unfinished = False
            return drawn

    def tidy(self) -> None:
        """After a release, at leisure: deleted rows leave the files, the next release's noise is drawn ahead."""
        if not self._keep_raw:
            self._store.engine.forget()
        self.prepare()

    def prepare(self) -> None:
        """Draw the next release's noise ahead, in memory: it does not depend on the data."""
        releasing.prepare(self._plan.protocol, self._noise)

    def _ticks(self, decisions: int) -> int:
        return self._calendar.due(decisions, self._clock.now)

    def _settled(self, decisions: int) -> int:
        """Ticks to do now."""
        self._counter.observe(decisions)
        due = self._ticks(decisions)
        if due <= self.open_step:
            self._due_since = math.inf
            return due
        self._due_since = min(self._due_since, time.monotonic())
        waited = time.monotonic() - self._due_since
        last = len(self._plan.times)
        if waited < self._settle:
            return self.open_step
        if due == last and waited < self._settle_last:
            return max(self.open_step, last - 1)
        self._due_since = math.inf
        return due

    def _draw(self, step: int) -> bool:
        """Draw a release; False if another worker, who believes to lead too, has drawn it first."""
        state = releasing.load_state(self._plan.protocol, self._store.encoder(self._term))
        if state.step != step:
            return False
        state, message = releasing.draw(self._plan, state, self._store.batch(self._term, step), self._noise)
        event = book.event(self._plan, self._silo, self._term, step)
        try:
            self._store.draw(
                self._term,
                step,
                messages.encode(message),
                releasing.dump_state(state),
                None if event is None else book.entry(self._store.last_entry(), event),
                wire=self.sealer(step, message),
                keep_raw=self._keep_raw,
            )
        except IllegalEvent:  # this draw was never on disk, so nobody has seen it
            return False
        return True
