"""An old copy of a silo's store, brought forward over what others have seen."""

import shutil
from contextlib import contextmanager, suppress

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.federation.silo import book
from fedbandit.federation.silo.forwarding import OldCopy, bring_forward, further, is_known, loss
from fedbandit.federation.silo.serving import Silo, acknowledged
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store import SiloStore
from fedbandit.federation.store.rewards import users_waiting
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.heads import Greeting
from fedbandit.privacy.ledger import verify
from fedbandit.schedule import clock as by_clock
from fedbandit.schedule import every
from tests.federation.clocks import HandClock
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


def forward(store, *heads, plan=PLAN, at=NOW):
    """Brought forward over what others answer: these heads."""
    answers = [Greeting(2, 2, syncs=head.length, seen=head) for head in heads]
    return bring_forward(OldCopy(store, plan, "silo", SIGNER, answers), at=at)


class Held:
    """The sealer of a silo that must not draw: the others have not answered, or have seen more of it."""

    held = "it is behind"

    def signer(self, sync):
        return SIGNER

    def takes_part(self, sync):
        return True


def users_waiting_in(silo):
    with silo.store.engine.read() as sql:
        return users_waiting(sql)


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
    def transaction(self, durable=True, letting_go=False):
        with self._engine.transaction(durable, letting_go) as sql:
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

    def later(self, query, values=()):
        rows = self.all(query, values)
        return lambda: rows


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


# -- rewards of before -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["now", "behind", "unknown"])
def test_rewards_that_were_released_do_not_count_again(tmp_path, at):
    """The batches given up had no time, so all decisions before them were forgotten, and their rewards counted anew.
    The clock may be behind, and a store may have been brought forward without a time."""
    hand, plan = HandClock(NOW), small_plan(schedule=by_clock(60.0), rounds=48, visits="private")
    timing = Timing(start=NOW, reward_window=3600.0)

    def started(name):
        return Silo.open(tmp_path / name, plan, secret=SECRET, clock=hand, timing=timing)

    def released(silo):
        decision = silo.decide([[1.0, 0.0]])
        silo.reward(decision.id, 1.0)
        hand.pass_time(60.0)
        silo.tick()
        return decision.id

    with started("new.db") as silo:
        first = released(silo)
    shutil.copy(tmp_path / "new.db", tmp_path / "old.db")
    with started("new.db") as silo:
        released(silo)
        head = book.head(silo.store.last_entry())
    with started("old.db") as silo:
        assert forward(silo.store, head, plan=plan, at=hand.wall if at == "now" else 5.0) == [1]
        if at == "unknown":
            with silo.store.engine.transaction() as sql:
                sql.all("UPDATE releases SET closed = 0 WHERE sync = 1")
    with started("old.db") as silo:
        second = released(silo)
        assert silo.reward(first, 1.0).repeated
        assert silo.reward(second, 1.0).repeated
        assert silo.store.batch(1, 3) == []


# -- heads that others hold ------------------------------------------------------------------------------------


def test_all_heads_that_others_hold_are_known_from_then_on(lost):
    """Only the furthest was: whoever had seen less, but more than the copy, kept the silo from drawing for good."""
    path, heads = lost
    with opened(path) as silo:
        assert forward(silo.store, heads[3], heads[5]) == [2, 3, 4, 5]
        ledger = silo.store.ledger()
        assert all(is_known(ledger, head) for head in heads)
        verify(book.entries(ledger), witnessed=[(head.length, head.hash.hex()) for head in (heads[3], heads[5])])
        assert forward(silo.store, heads[3], heads[5]) == []


def test_a_head_that_comes_up_later_or_was_not_named_is_known(lost):
    """A message of the lost store may be under way still, and earlier stores named one head only."""
    path, heads = lost
    with opened(path) as silo:
        forward(silo.store, heads[5])
        assert is_known(silo.store.ledger(), heads[3])
        assert forward(silo.store, heads[3], heads[5]) == []


def test_a_ledger_that_drew_again_what_others_hold_is_not_brought_forward(lost):
    path, heads = lost
    with opened(path) as silo:
        assert forward(silo.store, heads[2]) == [2]
        release(silo, 1)  # 3, which others have seen
        assert not is_known(silo.store.ledger(), heads[3])
        for seen in ([heads[3]], [heads[3], heads[5]]):
            with pytest.raises(ArgumentError, match="so there are two"):
                forward(silo.store, *seen)


TIMED = PLAN.changed(schedule=by_clock(3600.0), visits="private")


def on_a_clock(path, clock):
    return Silo.open(path, TIMED, secret=SECRET, clock=clock, timing=Timing(start=clock.wall))


def test_a_reward_that_may_be_in_a_lost_release_is_never_released_again(tmp_path):
    """Sent again after the copy was brought forward, it counted a second time: the copy did not know it."""
    clock, new, old = HandClock(1e9), tmp_path / "new.db", tmp_path / "old.db"
    with on_a_clock(new, clock) as silo:
        start = silo.term.started
        known, late = (silo.decide([[1.0, 0.0]], user=name).id for name in ("known", "late"))
        silo.reward(known, 0.5)
        silo.store.engine.forget()
        shutil.copy(new, old)
        silo.reward(late, 0.5)  # acknowledged, and released with sync 0
        mine = silo.decide([[1.0, 0.0]], shared=False, user="mine").id
        clock.pass_time(3600.0)
        assert silo.tick() == [0]
        head = book.head(silo.store.last_entry())
    clock.pass_time(600.0)

    def again():
        return Silo.open(old, TIMED, secret=SECRET, clock=clock, timing=Timing(start=start), catch_up=True)

    with again() as silo:
        assert forward(silo.store, head, plan=TIMED, at=clock.wall) == [0]
    for life in range(2):  # over restarts, too
        clock.pass_time(120.0)
        with again() as silo:
            assert silo.reward(known, 0.5).repeated
            assert not silo.reward(late, 0.5).counted
            assert not silo.reward(mine, 0.5).counted
            fresh = silo.decide([[1.0, 0.0]], user="fresh").id
            assert silo.reward(fresh, 0.5).counted == (life == 0)  # once: it is one person
            assert len(silo.store.batch(1, 1)) == 1
    with again() as silo:
        assert silo.status()["opted_out"] == 1
        assert silo.status()["over_cap"] == 2  # the one that is left out is counted there


@pytest.mark.parametrize("ahead", [0.0, 86_400.0])
def test_only_decisions_made_since_it_was_brought_forward_count(tmp_path, ahead):
    """Whoever has made a decision is known, and not when: the lost process may have had a clock that was ahead, and its
    decisions, of which nobody knows the rewards, counted a second time."""
    clock, old = HandClock(1e9), tmp_path / "old.db"
    with on_a_clock(tmp_path / "new.db", clock) as silo:
        start = silo.term.started
    shutil.copy(tmp_path / "new.db", old)
    timing = Timing(start=start)
    clock.pass_time(3600.0 + ahead)
    with Silo.open(tmp_path / "new.db", TIMED, secret=SECRET, clock=clock, timing=timing, catch_up=True) as silo:
        assert silo.tick()[:1] == [0]
        head = book.head(silo.store.entry(1, 0))
        lost = silo.decide([[1.0, 0.0]]).id
    clock.pass_time(-ahead)

    def again():
        return Silo.open(old, TIMED, secret=SECRET, clock=clock, timing=timing, catch_up=True)

    with again() as silo:
        before = silo.decide([[1.0, 0.0]]).id
        assert forward(silo.store, head, plan=TIMED, at=clock.wall) == [0]
    with again() as silo:  # within the minute
        assert not silo.reward(before, 0.5).counted
        assert not silo.reward(lost, 0.5).counted
        first, late = (silo.decide([[1.0, 0.0]]).id for _ in range(2))
        assert silo.reward(first, 0.5).counted
    with again() as silo:
        assert silo.reward(late, 0.5).counted
        assert silo.reward(silo.decide([[1.0, 0.0]]).id, 0.5).counted


def test_who_has_made_decisions_is_looked_up_where_rewards_are_stored_and_once(tmp_path, monkeypatch):
    """Reading ids is for the thread that answers everybody: with a store that hangs, it held up all decisions."""
    with opened(tmp_path / "a.db") as silo:
        before = [silo.decide([[1.0, 0.0]]).id for _ in range(6)]
        silo.store.give_up(1, [0], b"", b"", [], places=1, at=NOW, lost=True)
    with opened(tmp_path / "a.db") as silo:
        asked, issuers = [], silo.store.issuers

        def watched(*given):
            asked.append(given)
            return issuers(*given)

        monkeypatch.setattr(silo.store, "issuers", watched)
        rewards = [silo.read(decision, 0.5) for decision in before]
        assert not asked
        assert not any(acknowledged(verdict).counted for reward in rewards for verdict in silo.reward_many([reward]))
        assert len(asked) == 1
        assert silo.reward(silo.decide([[1.0, 0.0]]).id, 0.5).counted


def test_all_that_is_given_up_is_counted_beforehand(tmp_path):
    """Under `vector-sum`, rewards with a place in a later batch than the open one are among it."""
    plan = small_plan(rounds=20, trust="vector-sum", mechanism="tree", calibration="paper")
    new, old, hand, waits = tmp_path / "new.db", tmp_path / "old.db", HandClock(), Timing(settle=1800.0)

    def serve(silo, people):
        for _ in range(people):
            silo.reward(silo.decide([[1.0, 0.0]]).id, 1.0)

    def waiting(silo):
        with silo.store.engine.read() as sql:
            return users_waiting(sql)

    with Silo.open(new, plan, secret=SECRET, timing=waits, clock=hand) as silo:
        serve(silo, 12)
        assert silo.tick() == []
    shutil.copy(new, old)
    with Silo.open(new, plan, secret=SECRET, clock=hand) as silo:
        silo.tick()
        serve(silo, 4)
        silo.tick()
        heads = [book.head(row) for row in silo.store.ledger()]
    with Silo.open(old, plan, secret=SECRET, timing=waits, clock=hand) as silo:
        before = waiting(silo)
        answers = [Greeting(2, 2, syncs=len(heads), seen=heads[-1])]
        announced = loss(OldCopy(silo.store, plan, "silo", SIGNER, answers)).rewards
        forward(silo.store, heads[-1], plan=plan)
        assert announced == before - waiting(silo) == 12


def test_another_worker_that_begins_later_is_known_too(tmp_path):
    with opened(tmp_path / "a.db") as silo:
        silo.store.give_up(1, [0], b"", b"", [], places=1, at=NOW, lost=True)
        assert silo.store.issuers(1, b"first.") == {b"first."}
        assert silo.store.issuers(1, b"second") == {b"first.", b"second"}
        assert silo.store.issuers(1, b"first.") == {b"first.", b"second"}
        silo.store.give_up(1, [1], b"", b"", [], places=2, at=NOW, lost=True)
        assert silo.store.issuers(1, b"second") == {b"second"}


@pytest.mark.parametrize("mechanism", ["batches", "tree"])
def test_a_silo_that_decodes_by_itself_goes_on_after_what_was_given_up(tmp_path, mechanism):
    """It joins at sync 2, and draws all that follow."""
    plan = small_plan(rounds=5, schedule=every(1), trust="silo", mechanism=mechanism, decode_at="silo")
    with Silo.open(tmp_path / "late.db", plan, since=2) as silo:
        assert silo.term.open_sync == 2
        release(silo, 3)
        assert silo.store.in_state(1, ReleaseState.DRAWN) == [2, 3, 4]


@pytest.mark.parametrize("later", [0, 1])
def test_a_reward_taken_before_the_copy_was_brought_forward_is_never_released_again(tmp_path, later):
    """Whoever put the copy back noticed only later that it was behind. Meanwhile it served, and an application sent a
    reward again that the lost store had released: it was in the open batch, and left with it."""
    clock, new, old = HandClock(1e9), tmp_path / "new.db", tmp_path / "old.db"
    with on_a_clock(new, clock) as silo:
        start = silo.term.started
        late = silo.decide([[1.0, 0.0]], user="late").id
        silo.store.engine.forget()
        shutil.copy(new, old)
        assert silo.reward(late, 0.5).counted  # acknowledged, and released with sync 0
        clock.pass_time(3600.0)
        assert silo.tick() == [0]
        head = book.head(silo.store.last_entry())

    def again(sealer=None):
        return Silo.open(
            old, TIMED, secret=SECRET, clock=clock, timing=Timing(start=start), catch_up=True, sealer=sealer
        )

    with again(Held()) as silo:  # the others have not answered yet, or it says that it is behind
        assert silo.tick() == []
        silo.reward(late, 0.5)
        clock.pass_time(3600.0 * later)
        assert silo.tick() == []
    with again() as silo:
        assert forward(silo.store, head, plan=TIMED, at=clock.wall) == [0]
        assert users_waiting_in(silo) == 0
        fresh = silo.decide([[1.0, 0.0]], user="fresh").id
        assert silo.reward(fresh, 0.5).counted
        clock.pass_time(3600.0)
        silo.tick()
        assert [release.users for release in silo.store.releases(1)] == [0, *[0] * later, 1]


def test_a_batch_of_a_planned_size_holds_no_more_than_that(tmp_path):
    """A copy does not know which places were taken since, and gives them away again: with too many rewards in its
    batch, the silo drew nothing more in this term."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    plan = small_plan(rounds=8, schedule=every(4), trust="vector-sum", mechanism="tree", calibration="paper")

    def decided(silo, number):
        return [silo.decide([[1.0, 0.0]]).id for _ in range(number)]

    with Silo.open(new, plan, secret=SECRET) as silo:
        silo.store.engine.forget()
        shutil.copy(new, old)
        before = decided(silo, 3)
    with Silo.open(old, plan, secret=SECRET) as silo:
        after = decided(silo, 4)
        assert silo.reward(before[0], 0.5).counted
        told = silo.reward_all([(one, 0.5) for one in (*after, *before)])
        assert [one.counted for one in told] == [True] * 3 + [False] + [True] + [False] * 2
        assert [one.repeated for one in told] == [False] * 4 + [True] + [False] * 2
        assert silo.tick() == [0]
        assert silo.store.releases(1)[0].users == 4


@pytest.mark.parametrize(("syncs", "behind"), [(2, False), (3, True)])
def test_a_head_whose_row_is_gone_is_believed_unless_more_was_seen_than_was_drawn(lost, syncs, behind):
    """It may be of another ledger, which began after this one was lost."""
    other = heads.signed("silo", 1, b"x" * 32, SIGNER)
    with opened(lost[0]) as silo:  # it has drawn two
        with silo.store.engine.transaction() as sql:
            sql.all("DELETE FROM ledger WHERE number = 0")
        seen = {"mixer": Greeting(2, 2, syncs=syncs, seen=other)}
        assert (further(silo.store, 1, PLAN, seen) is not None) == behind
