"""A silo's ticks: close the batch that is due, draw its release, put both on disk with what it spends."""

from __future__ import annotations

import math
import threading
import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.silo import book, releasing
from fedbandit.federation.silo.counter import DecisionCounter
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.states import IllegalEvent, ReleaseState
from fedbandit.federation.store.silo_store import SiloStore, Term
from fedbandit.federation.timing import SteadyClock, Timing, calendar
from fedbandit.federation.wire import messages
from fedbandit.plan import Plan

__all__ = ["Ticker"]

LOOK_AGAIN = 0.5  # seconds after which other workers' decisions are looked up


class Ticker:
    """One tick at a time, in order.

    A batch that is due stays open for `timing.settle` seconds more, whatever comes in; the last one for
    `timing.settle_last`, since a reward that comes after it is lost. Without a `sealer` nothing is ever sent.
    """

    def __init__(
        self,
        store: SiloStore,
        plan: Plan,
        term: Term,
        counter: DecisionCounter,
        *,
        silo: str,
        timing: Timing,
        keep_raw: bool,
        sealer: Sealer | None,
        signer: Ed25519PrivateKey,
    ) -> None:
        self.open_sync = term.open_sync
        self._store, self._plan, self._term, self._counter = store, plan, term.number, counter
        self._silo, self._keep_raw, self._sealer, self._signer = silo, keep_raw, sealer, signer
        self._settle, self._settle_last = timing.settle, max(timing.settle, timing.settle_last)
        self._calendar, self._clock, self._noise = calendar(plan, term.started), SteadyClock(), ExactNoise()
        self._one_at_a_time = threading.Lock()
        self._due_since = math.inf
        self._looked = time.monotonic()
        self._unfinished = True  # a crash may have left a batch closed, not drawn

    def due(self) -> bool:
        """Whether a look at the calendar is worth a transaction: by the decisions known here, or, if other workers
        count decisions too, now and then."""
        if self._unfinished and (self._sealer is None or self._sealer.held is None):
            return True
        if self._store.engine.shared and time.monotonic() - self._looked > LOOK_AGAIN:
            return True
        return self._ticks(self._counter.total) > self.open_sync

    def release(self) -> list[int]:
        """Close the batches that are due and draw their releases; returns their syncs."""
        with self._one_at_a_time:
            self._unfinished, self._looked = True, time.monotonic()
            with self._counter.take() as pending:
                self.open_sync = self._store.tick(self._term, *pending, self._settled)
            undrawn = self._store.in_state(self._term, ReleaseState.CLOSED)
            drawn = [sync for sync in undrawn if self._draw(sync)]
            self._unfinished = len(drawn) < len(undrawn)
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
        if due <= self.open_sync:
            self._due_since = math.inf
            return due
        self._due_since = min(self._due_since, time.monotonic())
        waited = time.monotonic() - self._due_since
        last = len(self._plan.times)
        if waited < self._settle:
            return self.open_sync
        if due == last and waited < self._settle_last:
            return max(self.open_sync, last - 1)
        self._due_since = math.inf
        return due

    def _draw(self, sync: int) -> bool:
        """Draw a release; False if it must wait for the others' word (`Sealer.hold`), or if another worker has drawn it
        first, because it took itself for the leader too."""
        if self._sealer is not None and self._sealer.held is not None:
            return False
        stored = self._store.encoder(self._term)
        state = self._plan.protocol.init() if stored is None else messages.decode_stream(stored)
        if state.done != sync:
            return False
        state, message = releasing.draw(self._plan, state, self._store.batch(self._term, sync), self._noise)
        event, last = self._plan.release(self._silo, self._term, sync), self._store.last_entry()
        entry = None if event is None else book.entry(last, event, self._signer)
        try:
            self._store.draw(
                self._term,
                sync,
                messages.encode(message),
                messages.encode_stream(state),
                entry,
                wire=None if self._sealer is None else self._sealer.at_once(sync, message, book.head(entry or last)),
                keep_raw=self._keep_raw,
            )
        except IllegalEvent:  # this draw was never on disk, so nobody has seen it
            return False
        return True
