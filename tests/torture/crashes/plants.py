"""Bugs to plant in the process of a party: each of them must be noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fedbandit.federation.http.group import GroupCommit
from fedbandit.federation.silo import book, greetings
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.ticker import Ticker
from fedbandit.federation.states import RELEASE, SYNC, DecisionState, ReleaseEvent, ReleaseState, SyncEvent, SyncState
from fedbandit.federation.store.database import Sql, SqliteEngine
from fedbandit.federation.store.rewards import Reward, Verdict
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.store.silo_store import LedgerRow, SiloStore
from fedbandit.federation.store.sync_store import StoredSync, SyncStore
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import Mixed
from tests.torture.crashes.points import Way, replace

__all__ = ["PLANTS", "UNASKED", "Plant", "plant"]

UNASKED = "the others are not asked how far they have seen a party come"


class Plant(NamedTuple):
    """A bug, and where it is looked for: at this party's operations of these names, stopped in this way."""

    put: Callable[[], None]
    party: str
    near: tuple[str, ...]
    how: Way = "before"
    plan: str = "secure-sum"


def plant(name: str) -> None:
    """Plant the bug of this name in the running process."""
    if name == UNASKED:
        _unasked()
    elif name:
        PLANTS[name].put()


def _not_durable(*methods: tuple[type, str]) -> Callable[[], None]:
    """What these methods write waits in memory for the disk."""

    def put() -> None:
        for owner, method in methods:
            replace(owner, method, _hasty(getattr(owner, method)))

    return put


def _hasty(method: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*arguments: Any, **options: Any) -> Any:
        transaction = SqliteEngine.transaction

        @contextmanager
        def hasty(engine: SqliteEngine, durable: bool = True, letting_go: bool = False) -> Iterator[Sql]:
            with transaction(engine, durable=False) as sql:
                yield sql

        replace(SqliteEngine, "transaction", hasty)
        try:
            return method(*arguments, **options)
        finally:
            replace(SqliteEngine, "transaction", transaction)

    return changed


def _no_sync() -> None:
    async def commit(self: GroupCommit, rewards: list[Reward]) -> list[Verdict]:
        return self._silo.reward_many(rewards, durable=False)

    replace(GroupCommit, "_commit", commit)


def _answer_first() -> None:
    reward_many = Silo.reward_many
    late: list[Sequence[Reward]] = []

    def hasty(self: Silo, rewards: Sequence[Reward], durable: bool = True) -> list[Verdict]:
        for earlier in late:
            reward_many(self, earlier, durable)
        late[:] = [rewards]
        return [Verdict(DecisionState.COUNTED, self.ticker.open_sync, False, False) for _ in rewards]

    replace(Silo, "reward_many", hasty)


def _tick_in_two() -> None:
    def tick(
        self: SiloStore, term: int, decisions: int, unkeyed: int, due: Callable[[int], int], at: float, **_: Any
    ) -> int:
        now = self.term(term)
        open_sync = max(now.open_sync, due(now.seated))
        with self.engine.transaction() as sql:
            sql.all("UPDATE terms SET open_sync = ?, decisions = decisions + ?", (open_sync, decisions))
        with self.engine.transaction() as sql:
            for sync in range(now.open_sync, open_sync):
                users = len(self.batch(term, sync))
                row = (term, sync, ReleaseState.CLOSED.value, users, at)
                sql.all("INSERT INTO releases (term, sync, state, users, closed) VALUES (?, ?, ?, ?, ?)", row)
        return open_sync

    replace(SiloStore, "tick", tick)


def _pay_later() -> None:
    draw = SiloStore.draw

    def changed(self: SiloStore, term: int, sync: int, drawn: bytes, state: bytes, entry: Any, **options: Any) -> None:
        draw(self, term, sync, drawn, state, None, **options)
        _pay(self, entry)

    replace(SiloStore, "draw", changed)


def _pay_first() -> None:
    draw = SiloStore.draw

    def changed(self: SiloStore, term: int, sync: int, drawn: bytes, state: bytes, entry: Any, **options: Any) -> None:
        _pay(self, entry)
        draw(self, term, sync, drawn, state, None, **options)

    replace(SiloStore, "draw", changed)


def _pay(store: SiloStore, entry: LedgerRow) -> None:
    with store.engine.transaction() as sql:
        columns = "number, hash, previous, event, signature"
        sql.all(f"INSERT INTO ledger ({columns}) VALUES (?, ?, ?, ?, ?)", entry)


def _sent_first() -> None:
    publish = Agent._publish

    async def changed(self: Agent, link: Link, sync: int) -> None:
        self.silo.store.acknowledged(self.silo.term.number, sync)
        await publish(self, link, sync)

    replace(Agent, "_publish", changed)


def _published_first() -> None:
    async def changed(self: SyncKeeper, closed: StoredSync) -> None:
        self.store.published(closed.sync)
        await self.publish(closed)

    replace(SyncKeeper, "_publish", changed)


def _sealed_anew() -> None:
    """A release is sealed when it is sent, each time."""
    publish = Agent._publish

    async def changed(self: Agent, link: Link, sync: int) -> None:
        release = self.silo.store.release(self.silo.term.number, sync)
        assert release is not None
        assert release.drawn is not None
        wire = self._sealer._wire(sync, messages.decode(release.drawn), book.head(self.silo.store.last_entry()))
        with self.silo.store.engine.transaction() as sql:
            sql.all("UPDATE contents SET sealed = ? WHERE sync = ?", (wire.sealed, sync))
        await publish(self, link, sync)

    replace(Agent, "_publish", changed)


def _redrawn() -> None:
    """What was drawn and not acknowledged is drawn again."""
    for state in (ReleaseState.DRAWN, ReleaseState.SEALED):
        RELEASE[state][ReleaseEvent.DRAW] = ReleaseState.DRAWN
    released = Ticker.release

    def changed(self: Ticker) -> list[int]:
        if self._unfinished:
            with self._store.engine.transaction() as sql:
                sql.all("DELETE FROM contents WHERE sync IN (SELECT sync FROM releases WHERE state = 'sealed')")
                sql.all("UPDATE releases SET state = 'closed' WHERE state = 'sealed'")
                ((count,),) = sql.all("SELECT count(*) FROM releases WHERE state <> 'closed'")
                sql.all("DELETE FROM ledger WHERE number >= ?", (count,))
                if not count:
                    sql.all("DELETE FROM states WHERE name = 'encoder'")
        return released(self)

    replace(Ticker, "release", changed)


def _mixed_anew() -> None:
    """The total is made when it is sent."""
    publish = Mixer.publish

    async def changed(self: Mixer, closed: StoredSync, only: str | None = None) -> None:
        assert closed.value is not None
        analyzer = self.agreement.holder("analyzer")
        mixed = Mixed(self.agreement.cohort(closed.cohort), totals=self.store.head(closed.sync))
        sealed = self.party.seal("mixed", analyzer, closed.sync, mixed.encode())
        await publish(self, closed._replace(value=sealed), only)

    replace(Mixer, "publish", changed)


def _decoder_apart() -> None:
    close = SyncStore.close

    def changed(
        self: SyncStore, sync: int, event: Any, cohort: Any, value: bytes, head: Any, state: bytes | None = None
    ) -> None:
        close(self, sync, event, cohort, value, head)
        if state is not None:
            with self.engine.transaction() as sql:
                sql.all("DELETE FROM states WHERE name = 'decoder'")
                sql.all("INSERT INTO states (term, name, value) VALUES (0, 'decoder', ?)", (state,))

    replace(SyncStore, "close", changed)


def _kept_in_the_log() -> None:
    replace(SqliteEngine, "forget", lambda self: True)


def _closed_twice() -> None:
    """A sync whose result nobody has acknowledged is closed again."""
    SYNC[SyncState.CLOSED][SyncEvent.COMPLETE] = SyncState.CLOSED
    next_sync, close = SyncStore.next_sync, SyncStore.close

    def changed(self: SyncStore) -> int:
        waiting = [sync.sync for sync in self.all() if sync.state is SyncState.CLOSED]
        return min(waiting, default=next_sync(self))

    def kept(self: SyncStore, sync: int, *arguments: Any, **options: Any) -> None:
        inbox = self.inbox(sync)
        close(self, sync, *arguments, **options)
        with self.engine.transaction() as sql:
            rows = [(sync, sender, value) for sender, value in inbox.items()]
            sql.many("INSERT INTO inbox (sync, sender, value) VALUES (?, ?, ?)", rows)

    replace(SyncStore, "next_sync", changed)
    replace(SyncStore, "close", kept)
    replace(SyncStore, "unpublished", lambda self: [])


def _unasked() -> None:
    """What others have seen of a party is not held against its store."""
    replace(greetings, "further", lambda *known: None)
    replace(SyncKeeper, "_compare", lambda self, seen: None)


PLANTS: dict[str, Plant] = {
    "a reward is answered before it is stored": Plant(_answer_first, "silo-0", ("answer to reward",)),
    "a reward is answered before the sync": Plant(_no_sync, "silo-0", ("tick",), "power"),
    "a reward is counted without a sync": Plant(
        _not_durable((SiloStore, "count")), "silo-0", ("answer to decide",), "power"
    ),
    "a batch is closed apart from its tick": Plant(_tick_in_two, "silo-0", ("tick",)),
    "a release is paid for after its draw": Plant(_pay_later, "silo-0", ("_pay",)),
    "a release is paid for before its draw": Plant(_pay_first, "silo-0", ("draw",)),
    "a release is sent before it is on disk": Plant(
        _not_durable((SiloStore, "draw")), "silo-0", ("publish release", "acknowledged"), "power"
    ),
    "a release is marked as sent before it is": Plant(_sent_first, "silo-0", ("publish release",)),
    "a release is sealed anew on retry": Plant(_sealed_anew, "silo-0", ("publish release", "acknowledged")),
    "a release is drawn anew on retry": Plant(_redrawn, "silo-0", ("publish release", "acknowledged")),
    "a result is marked as published before it is": Plant(_published_first, "mixer", ("publish mixed",)),
    "a total is made anew on retry": Plant(_mixed_anew, "mixer", ("published",)),
    "a model is read before it is on disk": Plant(
        _not_durable((SiloStore, "outcome"), (SeenStore, "note")), "silo-0", ("expire", "forget"), "power"
    ),
    "a message is read before it is on disk": Plant(
        _not_durable((SyncStore, "receive"), (SeenStore, "note")),
        "mixer",
        ("answer to handle", "answer to advance"),
        "power",
    ),
    "the decoder moves apart from its result": Plant(_decoder_apart, "analyzer", ("changed",)),
    "a sync is closed again on retry": Plant(_closed_twice, "analyzer", ("publish model", "published"), plan="central"),
    "raw rows stay in the log": Plant(_kept_in_the_log, "silo-0", ("tick",)),
}
