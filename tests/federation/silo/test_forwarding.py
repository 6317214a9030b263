"""An old copy of a silo's store, brought forward over what others have seen."""

import shutil
from contextlib import contextmanager, suppress

import pytest

from fedbandit.federation.silo import book
from fedbandit.federation.silo.forwarding import bring_forward, is_known
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store import SiloStore
from fedbandit.federation.wire.heads import Greeting
from fedbandit.schedule import every
from tests.federation.small import small_plan

PLAN = small_plan(rounds=8, schedule=every(1))
SECRET = bytes(range(32))
SIGNER = book.own_signer(SECRET)
NOW = 2e9


def opened(path, **options):
    return Silo.open(path, PLAN, secret=SECRET, **options)


def release(silo, syncs):
    """So many releases, each of one person; returns the decisions."""
    decisions = []
    for _ in range(syncs):
        decision = silo.decide([[1.0, 0.0]])
        silo.reward(decision.id, 1.0)
        silo.tick()
        decisions.append(decision)
    return decisions


@pytest.fixture
def lost(tmp_path):
    """An old copy of two releases, and the six heads that the store at six releases has signed."""
    with opened(tmp_path / "new.db") as silo:
        release(silo, 2)
    shutil.copy(tmp_path / "new.db", tmp_path / "old.db")
    with opened(tmp_path / "new.db") as silo:
        release(silo, 4)
        return tmp_path / "old.db", [book.head(row) for row in silo.store.ledger()]


def forward(store, *heads):
    """Brought forward over what others answer: these heads."""
    answers = [Greeting(2, 2, syncs=head.length, seen=head) for head in heads]
    return bring_forward(store, PLAN, "silo", SIGNER, answers, at=NOW)


KILLS = [*({"statements": n} for n in (0, 5, 12, 20)), *({"transactions": n} for n in (1, 2, 4))]


class Killed(BaseException):
    pass


class DyingEngine:
    """An engine whose process is killed after so many statements of transactions, or after so many transactions."""

    def __init__(self, engine, *, statements=None, transactions=None):
        self._engine, self._statements, self._transactions = engine, statements, transactions

    def __getattr__(self, name):
        return getattr(self._engine, name)

    @contextmanager
    def transaction(self, durable=True):
        with self._engine.transaction(durable) as sql:
            self._sql = sql
            yield self
        if self._transactions is not None:
            self._transactions -= 1
            if not self._transactions:
                raise Killed

    def all(self, query, values=()):
        if self._statements is not None:
            self._statements -= 1
            if self._statements < 0:
                raise Killed
        return self._sql.all(query, values)


@pytest.mark.parametrize("kill", KILLS)
def test_killed_half_way_it_draws_nothing_that_others_have_seen(lost, kill):
    """Each sync was given up for itself, and the first of them named the last head: the others were drawn again."""
    path, heads = lost
    with opened(path) as silo, suppress(Killed):
        forward(SiloStore(DyingEngine(silo.store.engine, **kill)), heads[-1])
    with opened(path) as silo:
        given_up = silo.store.in_state(1, ReleaseState.GIVEN_UP)
        assert given_up in ([], [2, 3, 4, 5])
        assert is_known(silo.store.ledger(), heads[-1]) == bool(given_up)
        assert forward(silo.store, heads[-1]) == ([] if given_up else [2, 3, 4, 5])
        assert is_known(silo.store.ledger(), heads[-1])
        release(silo, 1)
        assert silo.store.in_state(1, ReleaseState.GIVEN_UP) == [2, 3, 4, 5]
        spent = book.spending(silo.store.ledger()).terms[0]
        assert (spent.released, spent.redrawn) == (7, ())


def test_a_ledger_that_names_a_lost_head_and_is_shorter_does_not_know_it(lost):
    path, heads = lost
    with opened(path) as silo:
        forward(silo.store, heads[-1])
        ledger = silo.store.ledger()
    assert [is_known(ledger[:length], heads[-1]) for length in range(2, 7)] == [False] * 4 + [True]
