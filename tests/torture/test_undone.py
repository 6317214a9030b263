"""What broke once is undone, fix by fix: a test that looks for it must then fail.

Each row of the table "What broke once" (docs/reliability.md) has at least one entry here. The bug is the behaviour as
it was, planted into the code as it is; the test is one of those that the row names, called as it stands.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedbandit.cli import options
from fedbandit.cli.engineer import members_command
from fedbandit.federation import process
from fedbandit.federation.setup.party import PlanMismatch
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.ticker import Ticker
from fedbandit.federation.store import database, postgres
from fedbandit.federation.store.database import SqliteEngine
from fedbandit.federation.store.postgres import PostgresEngine
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.federation.syncs import keeper
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.taken import Taken
from fedbandit.federation.wire import broker, envelopes, messages
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.keys import PublicKeys, public_nkey
from fedbandit.federation.wire.subjects import Subjects
from tests.federation import harness, test_failing_stores, test_process, test_states
from tests.federation.setup import test_setting_up
from tests.federation.silo import test_time
from tests.federation.store import test_store
from tests.federation.syncs import test_agents, test_keepers, test_syncs_live
from tests.federation.wire import test_broker
from tests.torture import test_attacks
from tests.torture.attacks import arena
from tests.torture.attacks.huge import HUGE
from tests.torture.attacks.over_http import OVER_HTTP
from tests.torture.attacks.planted import PLANTED as ATTACKED
from tests.torture.conftest import Size, Tally
from tests.torture.simulation.planted import PLANTED as SIMULATED

pytestmark = pytest.mark.fire

IMPATIENT = 10.0  # seconds after which what does not happen counts as noticed
Patch = pytest.MonkeyPatch
Undo = Callable[[Patch], None]


class Undone(NamedTuple):
    """A row of the table, the bug as it was, and a test that looks for it."""

    row: int
    bug: str
    undo: Undo
    test: Callable[..., None]
    given: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    slow: bool = False  # tried in full only: the test gives up after a while

    @property
    def looked_for_by(self) -> str:
        """As the page names it."""
        name = self.test.__name__
        return f"`{name}`" if name.startswith("test_") else f"attack `{name}`"


def _set(owner: object, name: str, value: object) -> Undo:
    return lambda patch: patch.setattr(owner, name, value)


def _all(*undo: Undo) -> Undo:
    def plant(patch: Patch) -> None:
        for one in undo:
            one(patch)

    return plant


def _one_account(patch: Patch) -> None:
    """Streams and parties in one account, told apart by permissions alone."""

    def accounts(subjects: Subjects, parties: Sequence[PublicKeys], operator: bytes) -> dict[str, Any]:
        users = [{"nkey": public_nkey(operator), "permissions": subjects.operator_permissions()}]
        users += [{"nkey": public_nkey(one.broker), "permissions": subjects.permissions(one)} for one in parties]
        return {broker.STREAMS: {"jetstream": "enabled", "users": users}}

    patch.setattr(broker, "accounts", accounts)


def _other_plans_are_fatal(patch: Patch) -> None:
    opened = SyncKeeper._opened

    def strict(self: SyncKeeper, envelope: bytes) -> Taken | None:
        claim = envelopes.claimed(envelope)
        if claim.plan != self.plan.hash:
            raise PlanMismatch(claim.sender, claim.plan, self.plan.hash)
        return opened(self, envelope)

    patch.setattr(SyncKeeper, "_opened", strict)


def _no_second_thoughts_after_a_failed_sync(patch: Patch) -> None:
    patch.setattr(SqliteEngine, "harden", lambda self: self._sync(self._log))


def _a_failing_tick_ends_the_silo(patch: Patch) -> None:
    async def ticks(self: Agent) -> None:
        while True:
            await self._look_around()
            await self.tick()
            await asyncio.sleep(0.05)

    patch.setattr(Agent, "_ticks", ticks)


def _lost_tables_are_made_again(patch: Patch) -> None:
    def create(sql: Any, statements: Sequence[str], found: object) -> None:
        for statement in statements:
            sql.all(statement)

    patch.setattr(database, "create", create)
    patch.setattr(postgres, "create", create)


def _a_model_is_inserted_twice(patch: Patch) -> None:
    outcome = SiloStore.outcome

    def insert(self: SiloStore, term: int, sync: int, included: bool, model: bytes, *also: Any) -> bool:
        with self.engine.transaction() as sql:
            if sql.all("SELECT 1 FROM models WHERE term = ? AND sync = ?", (term, sync)):
                sql.all("INSERT INTO models (term, sync, value) VALUES (?, ?, ?)", (term, sync, model))
        return outcome(self, term, sync, included, model, *also)

    patch.setattr(SiloStore, "outcome", insert)


def _any_number_of_parts(patch: Patch) -> None:
    """All parts are made before anybody looks how many there may be."""
    count = messages._count
    patch.setattr(messages, "_count", lambda reader, most: count(reader, None))


def _paths_as_they_were_given(patch: Patch) -> None:
    patch.setattr(options, "absolute", lambda path: path)
    patch.setattr(Path, "resolve", lambda self, strict=False: self)


def _attack(play: Callable[[Any], Any], case: Any) -> Callable[..., None]:
    def test() -> None:
        asyncio.run(play(case))

    test.__name__ = case.name
    return test


def _in_a_file(of_a_store: Callable[[Path], None]) -> Callable[..., None]:
    def test(tmp_path: Path) -> None:
        of_a_store(tmp_path / "store.db")

    test.__name__ = of_a_store.__name__
    return test


def half_open(monkeypatch: Patch) -> None:
    monkeypatch.setattr(arena, "PATIENCE", 2.0)
    asyncio.run(test_attacks.over_http(OVER_HTTP["half_open"]))


_of_attacks = {bug.name: bug.plant for bug in ATTACKED}
A_MIXER = {"name": "mixer", "copy": "none"}
_early = _all(
    SIMULATED["messages for later syncs are taken"], SIMULATED["the deadline runs from a message for a later sync"]
)

UNDONE = [
    Undone(1, "what a header raises ends the process", SIMULATED["a message that cannot be read ends the process"],
           test_keepers.test_no_message_stops_a_keeper_and_none_spoils_its_bundle),
    Undone(2, "deadlines run from messages of the future", _early,
           test_keepers.test_a_silo_ahead_of_time_moves_nobody),
    Undone(2, "overdue ticks are drawn without a word", _set(Ticker, "_hold_back", lambda self, overdue: None),
           test_time.test_after_a_reboot_many_overdue_ticks_are_not_drawn_without_a_word),
    Undone(3, "an old copy of a mixer goes on", SIMULATED["an old copy of a mixer or an analyzer goes on"],
           test_keepers.test_a_keeper_put_back_to_an_older_state_closes_nothing, A_MIXER),
    Undone(3, "an old copy of a silo draws", SIMULATED["an old copy of a silo draws"],
           test_agents.test_a_silo_put_back_to_an_older_state_draws_nothing_again, {"copy": "none"}, slow=True),
    Undone(4, "streams and parties share an account", _one_account,
           test_broker.test_the_server_does_nothing_for_a_party_by_way_of_a_reply_subject),
    Undone(5, "a model is illegal while a batch is closed and not drawn",
           SIMULATED["a model is illegal while a batch is closed and not drawn"],
           test_states.test_a_model_that_comes_before_the_release_is_drawn_changes_nothing),
    Undone(6, "a message of another plan is fatal", _other_plans_are_fatal,
           test_keepers.test_messages_of_an_earlier_plan_are_stale),
    Undone(7, "a sync that works after one that failed counts", _no_second_thoughts_after_a_failed_sync,
           test_store.test_after_a_failed_sync_nothing_is_durable_until_it_was_written_anew),
    Undone(7, "a full disk ends a mixer", SIMULATED["a full disk ends a mixer or an analyzer"],
           test_keepers.test_a_store_that_fails_while_a_sync_closes_ends_nobody),
    Undone(7, "a full disk ends a silo", _a_failing_tick_ends_the_silo,
           test_failing_stores.test_ticking_goes_on_after_the_store_has_failed, slow=True),
    Undone(8, "the mixer does not ask whom the analyzer holds",
           SIMULATED["the mixer counts in whom the analyzer does not hold"],
           test_keepers.test_a_silo_that_sends_to_one_side_only_is_left_out, {"only": "mixer"}),
    Undone(9, "nobody compares models", SIMULATED["nobody compares what the analyzer has told others"],
           test_keepers.test_an_analyzer_that_tells_silos_different_models_gets_nothing_more),
    Undone(9, "models are taken at any time", _of_attacks["models taken at any time"],
           test_agents.test_a_model_of_the_last_sync_sent_first_does_not_freeze_the_version, slow=True),
    Undone(10, "raw rows stay in the log", _set(SqliteEngine, "forget", lambda self: True),
           test_store.test_raw_rows_leave_the_log_as_soon_as_no_reader_is_in_the_way),
    Undone(11, "lost tables are made again", _lost_tables_are_made_again,
           _in_a_file(test_store.test_a_table_that_is_gone_is_not_made_again)),
    Undone(11, "ids are kept for ever", _set(SiloStore, "expire", lambda self, term, before: None),
           test_time.test_an_id_is_good_for_the_reward_window_and_then_forgotten),
    Undone(11, "a release leaves when it is drawn", _set(Ticker, "wait_to_send", lambda self, sync: 0.0),
           test_time.test_releases_leave_at_fixed_moments_however_many_people_came, {"people": 5}),
    Undone(11, "any federation file is taken", _set(process, "remember", lambda engine, key, value: value),
           test_process.test_a_changed_federation_file_is_noticed),
    Undone(11, "any number of arrays is made", _any_number_of_parts,
           _attack(test_attacks.by_message, HUGE["empty_arrays"]), slow=True),
    Undone(11, "headers may take for ever", _of_attacks["no time limit for headers"], half_open, slow=True),
    Undone(12, "a lost connection to the database stays lost",
           _set(PostgresEngine, "_alive", lambda self: self._connection),
           test_process.test_decisions_go_on_without_the_database_and_rewards_come_back_with_it),
    Undone(12, "a model that comes twice is inserted twice", _a_model_is_inserted_twice,
           test_syncs_live.test_what_is_handled_for_longer_than_the_broker_waits_counts_once, slow=True),
    Undone(13, "every format counts as read", _set(Greeting, "reads", lambda self, format_: True),
           test_agents.test_nobody_draws_for_a_receiver_of_another_format, slow=True),
    Undone(13, "any plan is founded", _set(broker, "MAX_PAYLOAD", 2**40),
           test_broker.test_a_plan_whose_messages_are_too_large_is_not_founded),
    Undone(14, "paths are as they were given", _paths_as_they_were_given,
           test_setting_up.test_the_brokers_configuration_has_absolute_paths),
    Undone(14, "the clock begins with the first command",
           _set(members_command, "_not_yet_begun", lambda agreed: agreed),
           test_setting_up.test_the_clock_begins_when_everybody_is_there),
    Undone(14, "nothing is said when all is well", _set(keeper.log, "info", lambda *given, **more: None),
           test_keepers.test_what_goes_well_is_logged),
]  # fmt: skip


@pytest.mark.parametrize("undone", UNDONE, ids=[f"{one.row}, {one.bug}" for one in UNDONE])
def test_a_fix_undone_is_noticed(
    undone: Undone, monkeypatch: Patch, request: pytest.FixtureRequest, size: Size, tally: Tally
) -> None:
    if (undone.slow and not size(0, 1)) or UNDONE.index(undone) % size(2, 1):
        pytest.skip("looked for by `make torture`")
    names = [name for name in inspect.signature(undone.test).parameters if name not in undone.given]
    given = {**undone.given, **{name: request.getfixturevalue(name) for name in names}}
    monkeypatch.setattr(harness, "LIMIT", IMPATIENT)
    undone.undo(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)) as noticed:
        undone.test(**given)
    print(f"{undone.bug}: {noticed.type.__name__}: {noticed.value}")
    tally("planted bugs caught", 1)


def test_every_row_is_undone() -> None:
    assert {one.row for one in UNDONE} == set(range(1, 15))
    assert len({one.bug for one in UNDONE}) == len(UNDONE)
