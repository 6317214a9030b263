"""Decisions for records: by a schema that is part of the plan, one at a time or a table at once."""

from __future__ import annotations

import datetime
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.evaluation.decisions import from_frame
from fedbandit.evaluation.evaluating import evaluate
from fedbandit.evaluation.targets import always
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.plan import Plan
from fedbandit.problem import Category, Number, Projection, Schema
from fedbandit.problem.encoding import RecordEncoder
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

NAMED = Schema({"age": Number(0, 120), "sex": Category(["f", "m"])}, actions=("low", "medium", "high"))
FREE = Schema({"age": Number(0, 120)}, {"dose": Number(0, 10)}, interactions=[("age", "dose")])
PERSON = {"age": 40, "sex": "f"}
DRUGS: list[dict[str, Any]] = [{"id": "aspirin", "features": {"dose": 3}}, {"id": "placebo"}]


def opened(folder: Path, schema: Schema = NAMED, strict: bool = False, **changes: Any) -> Silo:
    return Silo.open(folder / "silo.db", small_plan(schema=schema, **changes), secret=bytes(32), strict=strict)


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[Silo]:
    with opened(tmp_path) as one:
        yield one


def learnt(silo: Silo) -> list[list[float]]:
    """The rows that the open batch holds."""
    return [np.frombuffer(features).tolist() for features, _ in silo.store.batch(1, 0)]


def test_a_decision_for_a_person_among_the_named_actions(silo: Silo) -> None:
    decision = silo.decide(context=PERSON)
    assert (decision.name, decision.model, decision.propensity) == (NAMED.actions[decision.action], 0, 1.0)
    silo.reward(decision.id, 1.0)
    assert learnt(silo) == [RecordEncoder(NAMED).rows(PERSON).rows[decision.action].tolist()]


def test_a_column_says_who_shares(silo: Silo) -> None:
    people = [{**PERSON, "key": "a", "consent": True}, {**PERSON, "key": "b", "consent": False}]
    for table in (people, pl.DataFrame(people), pl.DataFrame(people).to_pandas()):
        made = silo.decide_many(table, users="key", shared="consent")
        assert [one.counted for one in silo.reward_all([(one.id, 1.0) for one in made])][1] is False
    assert silo.odd_values == {}
    assert len(learnt(silo)) == 1  # a's first visit
    for wrong in ("nobody", "sex"):
        with pytest.raises(ArgumentError, match="shared must be"):
            silo.decide_many(people, users="key", shared=wrong)


def test_a_log_is_on_disk_soon_and_old_entries_leave_it(tmp_path: Path) -> None:
    """Up to 127 entries waited in memory for ever, and were deleted only with a release."""
    clock, path = HandClock(), tmp_path / "log.db"
    plan = small_plan(schema=NAMED, schedule=fb.clock(86_400.0))

    def decisions() -> int:
        with sqlite3.connect(path) as beside:
            return int(beside.execute("SELECT count(*) FROM decisions").fetchone()[0])

    def within(seconds: float, wanted: int) -> bool:
        end = time.monotonic() + seconds
        while decisions() != wanted and time.monotonic() < end:
            time.sleep(0.05)
        return decisions() == wanted

    with Silo.open(tmp_path / "s.db", plan, clock=clock, log=DecisionLog(path, days=1)) as silo:
        for _ in range(3):
            silo.decide(context=PERSON)
        assert within(20, 3)
        clock.pass_time(2 * 86_400.0)
        silo.decide(context=PERSON)
        assert within(20, 1)
    clock.pass_time(2 * 86_400.0)
    with Silo.open(tmp_path / "s.db", plan, clock=clock, log=DecisionLog(path, days=1)):
        assert within(20, 0)


def test_records_that_say_nothing_are_people_too(silo: Silo) -> None:
    assert len(silo.decide_many([{}, {}], ["a", "b"])) == 2
    nameless: dict[Any, Any] = {1: "f"}
    assert len(silo.decide_many([nameless])) == 1  # what is no text is no name, as for one record
    assert silo.decide(context=nameless).action in range(3)


@pytest.mark.parametrize("contexts", [[PERSON, None], (one for one in [PERSON]), pl.LazyFrame([PERSON]), "age"])
def test_what_is_no_table_is_refused_in_words(silo: Silo, contexts: Any) -> None:
    with pytest.raises(ArgumentError, match="contexts must be rows"):
        silo.decide_many(contexts)


@pytest.mark.parametrize("user", ["", 5, None, b"a"])
def test_a_key_is_a_text(silo: Silo, user: Any) -> None:
    with pytest.raises(ArgumentError, match="user must be a text"):
        silo.decide_many([PERSON], [user])


def test_a_decision_among_actions_with_features(tmp_path: Path) -> None:
    with opened(tmp_path, FREE) as silo:
        decision = silo.decide(DRUGS, context={"age": 40})
        assert decision.name in ("aspirin", "placebo")
        assert silo.decide(DRUGS, context={"age": 40}, allowed=["placebo"])[1:] == (1, 0, 1.0, "placebo")
        assert silo.decide(DRUGS, context={"age": 40}, allowed=[0]).name == "aspirin"
        assert silo.odd_values == {"dose": {"missing": 3}}


def test_an_application_names_what_it_chose(tmp_path: Path) -> None:
    with opened(tmp_path, apprentice=True) as silo:
        decision = silo.decide(context=PERSON, chosen="high", propensity=0.5)
        assert decision[1:] == (2, 0, 0.5, "high")


@pytest.mark.parametrize("table", [pl.DataFrame, list], ids=["polars", "records"])
def test_a_table_of_people_is_decided_for_as_they_would_be_one_by_one(silo: Silo, table: Any) -> None:
    people = [{"age": 10 * number, "sex": "fm"[number % 2], "key": f"u{number}"} for number in range(12)]
    made = silo.decide_many(table(people), users="key")
    assert [one.name for one in made] == [silo.decide(context=one).name for one in people]
    acknowledged = silo.reward_all(pl.DataFrame({"decision": [one.id for one in made], "reward": [0.5] * 12}))
    assert len(acknowledged) == 12
    assert silo.status()["without_user_key"] == 12  # those one by one
    assert silo.odd_values == {}
    repeated = silo.reward_all([(one.id, 0.5) for one in made])
    assert all(one.repeated for one in repeated)


def test_rewards_of_a_table_may_be_truth_values_or_decimals(silo: Silo) -> None:
    """A column of who was helped is one of true and false."""
    made = [silo.decide(context=PERSON).id for _ in range(4)]
    cents = pl.Series("reward", ["0.25", "1"]).cast(pl.Decimal(3, 2))
    for rewards in (pl.Series("reward", [True, False]), cents):
        some = [made.pop(), made.pop()]
        assert all(one.counted for one in silo.reward_all(pl.DataFrame({"decision": some, "reward": rewards})))
    with pytest.raises(ArgumentError, match="reward must lie in"):
        silo.reward_all({"decision": [silo.decide(context=PERSON).id], "reward": ["1"]})


def test_large_tables_are_taken_in_parts(silo: Silo, monkeypatch: pytest.MonkeyPatch) -> None:
    people = {"age": list(range(100)), "sex": ["f"] * 100}
    whole = silo.decide_many(people, users=[str(number) for number in range(100)])
    monkeypatch.setattr("fedbandit.problem.records.AT_ONCE", 7 * 3 * NAMED.width)
    parts = silo.decide_many(people, users=[str(number) for number in range(100)])
    assert [one[1:] for one in parts] == [one[1:] for one in whole]


def test_everybody_in_a_table_may_be_offered_other_actions(tmp_path: Path) -> None:
    with opened(tmp_path, FREE) as silo:
        made = silo.decide_many(pl.DataFrame({"age": [1, 2]}), actions=DRUGS)
        assert [one.name for one in made] == [DRUGS[one.action]["id"] for one in made]
        assert silo.decide_many(pl.DataFrame({"age": []}), actions=DRUGS) == []


def test_through_a_projection(tmp_path: Path) -> None:
    schema = Schema.from_dict({**NAMED.as_dict(), "projection": {"columns": 5, "seed": 1}})
    assert schema.projection == Projection(5, 1)
    with opened(tmp_path, schema) as silo:
        alone, (together,) = silo.decide(context=PERSON), silo.decide_many([PERSON])
        assert alone[1:] == together[1:]
        silo.reward_all([(alone.id, 1.0), (together.id, 1.0)])
        first, second = learnt(silo)
        assert first == second
        assert len(first) == 5


def test_odd_records_are_served_and_counted_and_only_here(silo: Silo) -> None:
    silo.decide(context={})
    silo.decide(context={"age": 1000, "sex": "?"})
    silo.decide_many([{"age": "old", "sex": None}, PERSON])
    assert silo.odd_values == {"age": {"clamped": 1, "missing": 1, "unknown": 1}, "sex": {"missing": 2, "unknown": 1}}
    assert "odd" not in str(silo.status())


def test_strictly_they_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path, strict=True) as silo:
        assert silo.decide(context=PERSON).name
        with pytest.raises(ArgumentError, match=r"^context.age must be a number from 0 to 120, but is missing$"):
            silo.decide(context={"sex": "f"})
        with pytest.raises(ArgumentError, match=r"^context.sex must be one of f, m, but is something else$"):
            silo.decide_many([{"age": 1, "sex": "q"}])
        assert len(silo.decide_many([{**PERSON, "key": "a"}], users="key")) == 1
        assert silo.odd_values == {}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"context": [1]}, "context must be a table of fields, got list"),
        ({"context": {}, "actions": {}}, "actions must be a list of actions, got dict"),
        ({"context": {}, "actions": []}, "actions must be between 1 and 100000, got 0"),
        ({"context": {}, "actions": ["low", "low"]}, "actions must have different ids"),
        ({"context": {}, "actions": [3]}, "actions.0 must be a name, or a table with an id, got int"),
        ({"context": {}, "actions": [{"name": "low"}]}, "actions.0 does not know 'name'; it takes features, id"),
        ({"context": {}, "actions": [{"id": 3}]}, "actions.0 must have a text for its id and a table of features"),
        ({"context": {}, "allowed": ["lowest"]}, "allowed must be ids of offered actions, got 'lowest'"),
        ({"context": {}, "allowed": ["low", 1]}, "allowed must be ids of offered actions, got '1'"),
        ({"context": {}, "allowed": [3]}, "allowed must lie between 0 and 2, got 3 to 3"),
        ({"actions": None}, "actions must"),
    ],
)
def test_what_is_no_record_at_all_is_refused(silo: Silo, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        silo.decide(**asked)
    assert str(error.value).startswith(message)


def test_tables_that_cannot_be_meant_are_refused(silo: Silo) -> None:
    with pytest.raises(ArgumentError, match=r"^users must be keys, or the name of a column, got 'key'$"):
        silo.decide_many([PERSON], users="key")
    with pytest.raises(ArgumentError, match=r"^users must be as many as contexts, 1, got 2$"):
        silo.decide_many([PERSON], users=["a", "b"])
    with pytest.raises(ArgumentError, match=r"^rewards must have a column 'reward', got decision$"):
        silo.reward_all({"decision": []})
    with pytest.raises(ArgumentError, match=r"^actions must be left out: contexts already hold a row per action$"):
        silo.decide_many(np.zeros((1, 2, NAMED.dim)), actions=["low"])


def test_without_a_schema_there_are_no_records(tmp_path: Path) -> None:
    with Silo.open(tmp_path / "silo.db", small_plan(), secret=bytes(32)) as silo:
        with pytest.raises(ArgumentError, match=r"^context must be left out: the plan has no schema"):
            silo.decide(context=PERSON)
        assert silo.odd_values == {}


def test_rows_are_taken_beside_records(silo: Silo) -> None:
    rows = RecordEncoder(NAMED).rows(PERSON).rows
    assert silo.decide(rows).name is None
    assert silo.decide(rows).action == silo.decide(context=PERSON).action


def test_a_store_of_another_schema_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    other = Schema({"age": Number(0, 121), "sex": Category(["f", "m"])}, actions=("low", "medium", "high"))
    plan: Plan = small_plan(schema=other)
    with pytest.raises(ValueError, match="plan"):
        Silo.open(tmp_path / "silo.db", plan, secret=bytes(32))


def test_the_log_has_records_as_they_were_sent_and_their_rows(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    plan = small_plan(schema=NAMED)
    with Silo.open(tmp_path / "silo.db", plan, secret=bytes(32), log=log) as silo:
        made = [silo.decide(context=PERSON), *silo.decide_many(pl.DataFrame([PERSON, {"age": 3, "sex": "?"}]))]
        silo.reward_all([(one.id, 0.5) for one in made])
        frame = log.frame()
    offered = [{"id": name, "features": {}} for name in NAMED.actions]
    records = sorted(map(json.loads, frame["record"]), key=lambda one: -one["context"]["age"])
    assert records == [{"context": one, "actions": offered} for one in (PERSON, PERSON, {"age": 3, "sex": "?"})]
    rows = RecordEncoder(NAMED).rows(PERSON).rows.tolist()
    assert [one == rows for one in frame["rows"].to_list()].count(True) == 2
    found = evaluate(from_frame(frame), {"low": always("low")})
    assert found.logged.value == 0.5


def test_the_log_has_features_of_actions(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    with Silo.open(tmp_path / "silo.db", small_plan(schema=FREE), secret=bytes(32), log=log) as silo:
        silo.decide(DRUGS, context={"age": 40, "seen": datetime.date(2026, 1, 1)})
        (record,) = log.frame()["record"].to_list()
    offered = [{"id": "aspirin", "features": {"dose": 3}}, {"id": "placebo", "features": {}}]
    assert json.loads(record) == {"context": {"age": 40, "seen": "2026-01-01"}, "actions": offered}
