"""A silo's ticks: close the batch that is due, draw its release, and write both to disk with the budget it spends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.own_knowledge import summed
from fedbandit.federation.silo import book, releasing
from fedbandit.federation.silo.decisions.counter import DecisionCounter
from fedbandit.federation.silo.decisions.seats import Seats
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.states import IllegalEvent, ReleaseState
from fedbandit.federation.store.silo_store import OWN_RELEASE, SiloStore, Term
from fedbandit.federation.timing import (
    Clocks,
    Reading,
    SteadyClock,
    TicksHeld,
    TicksOverdue,
    Timing,
    calendar,
    pace,
)
from fedbandit.federation.wire import messages
from fedbandit.plan import Plan

__all__ = ["CLOCK", "SumsFull", "Ticker", "clock_of"]

LOOK_AGAIN = 0.5  # seconds between looks at the decisions of other workers
LATE = 1000  # syncs whose tick times are remembered
CLOCK = "clock"  # the last reading of the clocks, kept in the store


class SumsFull(RuntimeError):
    """More people have come than the plan's 64-bit sums hold. The sums would wrap around, so they are not released."""

    def __init__(self, people: int, capacity: int) -> None:
        super().__init__(
            f"one release would hold {people:,} people, and the plan's 64-bit sums hold {capacity:,} per silo: nothing "
            "more is released, and no reward is lost; a plan with fewer bits holds more people"
        )


class Ticker:
    """Does one tick at a time, in order.

    A batch that is due stays open for `timing.settle` more seconds, whatever comes in. The last batch stays open for
    `timing.settle_last`, because a reward that comes after it is lost. Without a `sealer` nothing is ever sent.

    Several overdue ticks are drawn only if this silo's downtime explains them and their syncs can still be open:
    otherwise a clock that is ahead would spend the whole term in one go. With `catch_up` somebody vouches for the
    clock, and all overdue ticks are drawn.
    """

    def __init__(
        self,
        store: SiloStore,
        plan: Plan,
        term: Term,
        counter: DecisionCounter,
        seats: Seats,
        *,
        silo: str,
        timing: Timing,
        clock: SteadyClock,
        keep_raw: bool,
        sealer: Sealer | None,
        catch_up: bool,
        signer: Callable[[int], Ed25519PrivateKey],
    ) -> None:
        self.open_sync = term.open_sync
        self._store, self._plan, self._term, self._counter, self._seats = store, plan, term.number, counter, seats
        self._silo, self._keep_raw, self._sealer, self._signer = silo, keep_raw, sealer, signer
        self._timing, self._pace = timing, pace(plan, timing)
        self._calendar, self._clock, self._noise = calendar(plan, term.started, timing), clock, ExactNoise()
        self._one_at_a_time = threading.Lock()
        self._looked = clock.steady
        self._ticked_at: dict[int, float] = {}
        self._unfinished = True  # a crash may have left a batch closed and not drawn
        self._catch_up = catch_up
        self._capacity = plan.capacity // plan.silos  # the sum over silos must fit too
        self._counted = (0, 0)  # a sync, and the people in the batches before it

    def due(self) -> bool:
        """Whether a look at the calendar is worth a transaction: by what this worker knows, or, if other workers count
        decisions too, from time to time."""
        if self._unfinished and (self._sealer is None or self._sealer.held is None):
            return True
        if self._store.engine.shared and self._clock.steady - self._looked > LOOK_AGAIN:
            return True
        return self._due(self._seats.taken) > self.open_sync

    def look_in(self) -> float | None:
        """Seconds until the next tick is due; None if its time is not known in advance, or has passed."""
        moment = None if self.open_sync >= len(self._plan.ticks) else self._calendar.moment(self.open_sync)
        wait = 0.0 if moment is None else moment - self._clock.expected
        return wait if wait > 0 else None

    def check(self) -> None:
        """Raise TicksHeld if nothing would be drawn now because the time is in doubt."""
        self._clock.now()  # a calendar that counts decisions ignores the clock, but a doubtful clock stops it too
        self._hold_back(self._due(self._seats.taken) - self.open_sync)

    def release(self) -> list[int]:
        """Close the batches that are due and draw their releases; returns their syncs. Raises TicksHeld, and does
        nothing, if the time is in doubt; raises SumsFull if a batch is closed and cannot be drawn."""
        with self._one_at_a_time:
            self._unfinished, self._looked = True, self._clock.steady
            reading = self._clock.reading()
            with self._counter.take() as pending:
                clock = (CLOCK, reading.encode())
                self.open_sync = self._store.tick(self._term, *pending, self._ticks, at=reading.wall, clock=clock)
            undrawn = self._store.in_state(self._term, ReleaseState.CLOSED)
            for sync in undrawn:  # if an earlier process closed the batch, its pace begins now
                self._ticked_at.setdefault(sync, self._clock.steady)
            drawn = [sync for sync in undrawn if self._draw(sync)]
            self._unfinished = len(drawn) < len(undrawn)
            return drawn

    def wait_to_send(self, sync: int) -> float:
        """Seconds until a release may leave: at a whole multiple of the pace after its tick. How long drawing takes
        depends on how many people came; when the release leaves does not, unless drawing took longer than one pace."""
        moment = self._calendar.moment(sync)
        if moment is not None:
            return -(self._clock.expected - moment) % self._pace
        return -(self._clock.steady - self._ticked_at[sync]) % self._pace if sync in self._ticked_at else 0.0

    def tidy(self) -> bool:
        """Clean up some time after a release: clear deleted rows from the files, forget expired ids, draw the noise of
        the next release ahead. Returns False if the files could not be cleared yet, and it must be called again."""
        expired = self._store.expire(self._term, self._clock.expected - self._timing.reward_window)
        if self._plan.endless:
            self._store.prune(self._term, min(expired + 1, self.open_sync - self._plan.reach))
        done = self._keep_raw or self._store.engine.forget()
        self.prepare()
        return done

    def prepare(self) -> None:
        """Draw the noise of the next release ahead, in memory; it does not depend on the data."""
        releasing.prepare(self._plan.protocol, self._noise)

    def _ticks(self, seated: int) -> int:
        """How many ticks of the term are due; notes when each came. Raises TicksHeld if the time is in doubt."""
        self._seats.observe(seated)
        due = self._due(seated)
        self._hold_back(due - self.open_sync)
        self._ticked_at = {sync: at for sync, at in self._ticked_at.items() if sync > self.open_sync - LATE}
        for sync in range(self.open_sync, due):
            self._ticked_at.setdefault(sync, self._clock.steady)
        return due

    def _due(self, seated: int) -> int:
        """The number of ticks of the term that are due, up to the last sync that this silo takes part in. If it was
        dismissed, its batches stay open, and nothing more is drawn."""
        due = self._calendar.due(seated, self._clock)
        while self._sealer is not None and due > self.open_sync and not self._sealer.takes_part(due - 1):
            due -= 1
        return due

    def _hold_back(self, overdue: int) -> None:
        if overdue > 1 and not self._catch_up and not self._seats.counted:
            stale = self._calendar.stale(self.open_sync + 1, self._timing.deadline, self._clock)
            if stale or not self._clock.vouched:
                raise TicksOverdue(overdue)
        if overdue <= 1:
            self._clock.vouched, self._catch_up = True, False  # this process has seen the time pass

    def _draw(self, sync: int) -> bool:
        """Draw a release. Returns False if it must wait for the others' answers (`Sealer.hold`), or if another worker,
        which also took itself for the leader, has drawn it first."""
        if self._sealer is not None and (self._sealer.held is not None or not self._sealer.takes_part(sync)):
            return False
        stored = self._store.encoder(self._term)
        state = self._plan.protocol.init() if stored is None else messages.decode_stream(stored)
        if state.done != sync:
            return False
        batch = self._store.batch(self._term, sync)
        people = self._earlier(sync) + len(batch)
        if people > self._capacity:
            raise SumsFull(people, self._capacity)
        state, message = releasing.draw(self._plan, state, batch, self._noise)
        event, last = self._plan.release(self._silo, self._term, sync), self._store.last_entry()
        entry = None if event is None else book.entry(last, event, self._signer(sync))
        try:
            self._store.draw(
                self._term,
                sync,
                messages.encode(message),
                messages.encode_stream(state),
                entry,
                wire=None if self._sealer is None else self._sealer.at_once(sync, message, book.head(entry or last)),
                keep_raw=self._keep_raw,
                own=summed(self._plan, batch),
                own_release=releasing.own_after(self._plan, self._store.state(self._term, OWN_RELEASE), message),
            )
        except IllegalEvent:  # this draw did not reach the disk, so nobody has seen it
            return False
        self._counted = (sync + 1, people)
        return True

    def _earlier(self, sync: int) -> int:
        """The number of people in the earlier batches that this release holds. The process that drew the last release
        has counted them; any other asks the store."""
        if self._plan.endless:  # a release holds only the last batches
            return self._store.people_before(self._term, sync, sync - self._plan.encoder.touches)
        counted_to, people = self._counted
        return people if counted_to == sync else self._store.people_before(self._term, sync)


def clock_of(store: SiloStore, term: int, clocks: Clocks, believe: bool) -> SteadyClock:
    """The clock of a silo, compared with its last reading in the store, which may be of the term before."""
    readings = (store.state(number, CLOCK) for number in range(term, 0, -1))
    stored = next((reading for reading in readings if reading is not None), None)
    clock = SteadyClock(clocks, None if stored is None else Reading.decode(stored))
    if believe:
        clock.believe()
    with suppress(TicksHeld):  # the reading of a clock that has jumped is not stored
        store.set_state(term, CLOCK, clock.reading().encode())
    return clock
