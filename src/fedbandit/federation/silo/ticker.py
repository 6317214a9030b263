"""A silo's ticks: close the batch that is due, draw its release, put both on disk with what it spends."""

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

LOOK_AGAIN = 0.5  # seconds after which other workers' decisions are looked up
LATE = 1000  # syncs for which it is remembered when they ticked
CLOCK = "clock"  # the last reading of the clocks, kept in the store


class SumsFull(RuntimeError):
    """More people have come than the plan's 64-bit sums hold: what they would wrap to is not released."""

    def __init__(self, people: int, capacity: int) -> None:
        super().__init__(
            f"{people:,} people have come whom one release holds, the plan holds {capacity:,} per silo in 64-bit sums: "
            "nothing more is released, no reward is lost; a plan with fewer bits holds more people"
        )


class Ticker:
    """One tick at a time, in order.

    A batch that is due stays open for `timing.settle` seconds more, whatever comes in; the last one for
    `timing.settle_last`, since a reward that comes after it is lost. Without a `sealer` nothing is ever sent.

    More than one overdue tick is drawn only if the stop of this silo explains it and their syncs can still be open:
    a clock that is ahead would otherwise spend the term in one go. With `catch_up` somebody says that the clock is
    right, and whatever is overdue is drawn.
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
        self._unfinished = True  # a crash may have left a batch closed, not drawn
        self._catch_up = catch_up
        self._capacity = plan.capacity // plan.silos  # the sum over silos must fit too
        self._counted = (0, 0)  # people in the batches before this one

    def due(self) -> bool:
        """Whether a look at the calendar is worth a transaction: by what is known here, or, if other workers count
        decisions too, now and then."""
        if self._unfinished and (self._sealer is None or self._sealer.held is None):
            return True
        if self._store.engine.shared and self._clock.steady - self._looked > LOOK_AGAIN:
            return True
        return self._due(self._seats.taken) > self.open_sync

    def look_in(self) -> float | None:
        """Seconds until the next tick is due, if its time is known beforehand and still to come."""
        moment = None if self.open_sync >= len(self._plan.ticks) else self._calendar.moment(self.open_sync)
        wait = 0.0 if moment is None else moment - self._clock.expected
        return wait if wait > 0 else None

    def check(self) -> None:
        """TicksHeld if nothing would be drawn now because the time is in doubt."""
        self._clock.now()  # a calendar that counts decisions does not look at it, and yet nothing ticks
        self._hold_back(self._due(self._seats.taken) - self.open_sync)

    def release(self) -> list[int]:
        """Close the batches that are due and draw their releases; returns their syncs. TicksHeld if the time is in
        doubt: then nothing is done; SumsFull if a batch is closed and cannot be drawn."""
        with self._one_at_a_time:
            self._unfinished, self._looked = True, self._clock.steady
            reading = self._clock.reading()
            with self._counter.take() as pending:
                clock = (CLOCK, reading.encode())
                self.open_sync = self._store.tick(self._term, *pending, self._ticks, at=reading.wall, clock=clock)
            undrawn = self._store.in_state(self._term, ReleaseState.CLOSED)
            for sync in undrawn:  # of a batch that an earlier process has closed, the pace begins now
                self._ticked_at.setdefault(sync, self._clock.steady)
            drawn = [sync for sync in undrawn if self._draw(sync)]
            self._unfinished = len(drawn) < len(undrawn)
            return drawn

    def wait_to_send(self, sync: int) -> float:
        """Seconds until a release may leave: at a whole multiple of the pace after its tick. How long it took to draw
        it depends on how many people came; when it leaves does not, unless that took longer than one pace."""
        moment = self._calendar.moment(sync)
        if moment is not None:
            return -(self._clock.expected - moment) % self._pace
        return -(self._clock.steady - self._ticked_at[sync]) % self._pace if sync in self._ticked_at else 0.0

    def tidy(self) -> bool:
        """After a release, at leisure: deleted rows leave the files, expired ids are forgotten, the next release's
        noise is drawn ahead. False if the files could not be cleared yet: it is then to be called again."""
        expired = self._store.expire(self._term, self._clock.expected - self._timing.reward_window)
        if self._plan.endless:
            self._store.prune(self._term, min(expired + 1, self.open_sync - self._plan.reach))
        done = self._keep_raw or self._store.engine.forget()
        self.prepare()
        return done

    def prepare(self) -> None:
        """Draw the next release's noise ahead, in memory: it does not depend on the data."""
        releasing.prepare(self._plan.protocol, self._noise)

    def _ticks(self, seated: int) -> int:
        """Ticks to do now."""
        self._seats.observe(seated)
        due = self._due(seated)
        self._hold_back(due - self.open_sync)
        self._ticked_at = {sync: at for sync, at in self._ticked_at.items() if sync > self.open_sync - LATE}
        for sync in range(self.open_sync, due):
            self._ticked_at.setdefault(sync, self._clock.steady)
        return due

    def _due(self, seated: int) -> int:
        """Ticks that are due, as far as this silo takes part in their syncs: batches of one that was dismissed stay
        open, and nothing more of it is drawn."""
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
        """Draw a release; False if it must wait for the others' word (`Sealer.hold`), or if another worker has drawn it
        first, because it took itself for the leader too."""
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
        except IllegalEvent:  # this draw was never on disk, so nobody has seen it
            return False
        self._counted = (sync + 1, people)
        return True

    def _earlier(self, sync: int) -> int:
        """People in the batches before this one that its release holds: as this process has counted them, if it drew
        the last one."""
        if self._plan.endless:  # a release holds the last batches and none before them
            return self._store.people_before(self._term, sync, sync - self._plan.encoder.touches)
        counted_to, people = self._counted
        return people if counted_to == sync else self._store.people_before(self._term, sync)


def clock_of(store: SiloStore, term: int, clocks: Clocks, believe: bool) -> SteadyClock:
    """The clock of a silo, compared with what the silo last knew of it."""
    stored = store.state(term, CLOCK)
    clock = SteadyClock(clocks, None if stored is None else Reading.decode(stored))
    if believe:
        clock.believe()
    with suppress(TicksHeld):  # a clock that has jumped is not written down
        store.set_state(term, CLOCK, clock.reading().encode())
    return clock
