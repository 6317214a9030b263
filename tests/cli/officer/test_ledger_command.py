"""`fedbandit ledger`."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from fedbandit import Plan, Privacy, Silo
from fedbandit.federation.one_process import StillClock
from fedbandit.federation.setup import founding
from fedbandit.federation.silo import book
from fedbandit.federation.store import open_engine
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.store.silo_store import LedgerRow
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.heads import Head
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.privacy.ledger import LOST, Entry, Gaussian, Release, event_to_json, to_json
from fedbandit.schedule import clock
from tests.cli.officer.running import run
from tests.federation.conftest import postgres_server
from tests.privacy.test_ledger import COST, SYNCS, WHOLE, chained, release

PLAN = Plan(1, 4, 2, Privacy(1.0, 0.1), trust="silo", schedule=clock(3600))


def test_ledger_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, WHOLE)) + "\n")
    data = json.loads(run("ledger", file, "--head", WHOLE[-1].hash, "--json").stdout)
    assert data["entries"] == SYNCS
    assert data["spent"]["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert data["terms"][0]["left"] == pytest.approx(0.0, abs=1e-6)
    assert (data["terms"][0]["released"], data["terms"][0]["syncs"]) == (SYNCS, SYNCS)
    assert data["in_the_clear"] is None  # entries alone do not tell
    shown = run("ledger", file)
    assert "12 of 12" in shown.stdout
    said = " ".join(shown.stderr.split())
    assert "only the silo's own store shows such terms" in said
    assert "for a user in every term of these entries (replace-one) no more was spent" in said
    file.write_text("\n".join(map(to_json, WHOLE[:4] + WHOLE[5:])))
    assert "removed" in str(run("ledger", file).exception)
    file.write_text(to_json(WHOLE[0]).replace("gaussian", "teapot"))
    assert f"{file}, line 1: event kind" in str(run("ledger", file).exception)


def test_what_is_left_is_printed_as_no_less_than_it_is(tmp_path: Path) -> None:
    file, plan = tmp_path / "ledger.jsonl", replace(PLAN, rounds=9)
    events = [event for sync in range(9) if (event := plan.release("a", 1, sync)) is not None]
    for entries in range(1, 9):
        file.write_text("\n".join(map(to_json, chained(events[:entries]))) + "\n")
        left = json.loads(run("ledger", file, "--json").stdout)["terms"][0]["left"]
        row = next(line for line in run("ledger", file).stdout.splitlines() if f"{entries} of 9" in line)
        printed = float(row.strip(" │").split("│")[-1])
        assert left * (1 - 1e-9) <= printed <= left * 1.001


def test_ledger_of_a_live_silo_s_database(tmp_path: Path) -> None:
    file = tmp_path / "silo.db"
    with sqlite3.connect(file) as database:
        columns = "number INTEGER PRIMARY KEY, hash TEXT, previous TEXT, event TEXT, signature TEXT"
        database.execute(f"CREATE TABLE ledger ({columns})")
        rows = [(k, e.hash, e.previous, event_to_json(e.event), e.signature) for k, e in enumerate(WHOLE[:5])]
        database.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?)", rows)
    database.close()
    assert json.loads(run("ledger", file, "--json").stdout)["terms"][0]["released"] == 5


def test_the_entries_alone_say_the_same_as_the_store(tmp_path: Path) -> None:
    store, file = tmp_path / "silo.db", tmp_path / "entries.jsonl"
    now = StillClock()
    with Silo.open(store, PLAN, clock=now) as silo:
        now.now += 3600
        silo.tick()
    written = run("ledger", store, "--out", file, "--json")
    read = run("ledger", file, "--json")
    assert {**json.loads(written.stdout), "in_the_clear": None} == json.loads(read.stdout)
    before = store.read_bytes()
    for taken in (file, store):
        assert "out must be a new file that can be written" in str(run("ledger", store, "--out", taken).exception)
    assert store.read_bytes() == before


def test_ledger_of_a_silo_s_database_on_a_server() -> None:
    """It was looked for as a file, `postgresql:/...`: nobody could read the ledger of a silo with several workers."""
    with postgres_server() as server:
        empty = run("ledger", server.url)
        assert "is empty" in str(empty.exception)
        now = StillClock()
        with Silo.open(server.url, PLAN, secret=bytes(32), clock=now, catch_up=True) as silo:
            now.now += 7200
            silo.tick()
        shown = json.loads(run("ledger", server.url, "--json").stdout)
    assert (shown["terms"][0]["released"], shown["in_the_clear"]) == (2, [])


@pytest.mark.parametrize("column", ["hash", "previous", "event", "signature"])
@pytest.mark.parametrize("damaged", [None, 7, b"\xff"])
def test_a_database_with_anything_but_text_in_its_ledger_is_refused(
    tmp_path: Path, column: str, damaged: object
) -> None:
    file, entry = tmp_path / "silo.db", WHOLE[0]
    row = {"hash": entry.hash, "previous": entry.previous, "event": event_to_json(entry.event), "signature": ""}
    with sqlite3.connect(file) as database:
        database.execute(f"CREATE TABLE ledger (number INTEGER PRIMARY KEY, {', '.join(row)})")
        database.execute("INSERT INTO ledger VALUES (0, ?, ?, ?, ?)", tuple({**row, column: damaged}.values()))
    database.close()
    assert f"{column} must be of type str" in str(run("ledger", file).exception)


def test_a_database_without_a_ledger_and_a_file_without_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE other (number INTEGER)")
    database.close()
    assert "must be a silo's database" in str(run("ledger", file).exception)
    file.write_bytes(b"\xff\xfe")
    assert "must be text" in str(run("ledger", file).exception)


def test_a_store_that_is_not_a_silo_s_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    """Both were taken for a ledger that has spent nothing."""
    open_engine(tmp_path / "analyzer.db").close()
    assert "is not: no term was ever begun in it" in str(run("ledger", tmp_path / "analyzer.db").exception)
    (tmp_path / "empty").write_text("\n")
    assert "holds no entry" in str(run("ledger", tmp_path / "empty").exception)
    Silo.open(tmp_path / "silo.db", PLAN).close()
    data = json.loads(run("ledger", tmp_path / "silo.db", "--json").stdout)
    assert (data["entries"], data["spent"]["epsilon"]) == (0, 0.0)
    assert "nothing has been released" in run("ledger", tmp_path / "silo.db").stderr


def test_a_term_in_the_clear_is_no_term_that_spent_nothing(tmp_path: Path) -> None:
    """A plan without a budget writes no entry; the ledger said that nothing had been released."""
    store = tmp_path / "silo.db"

    def whole_term(plan: Plan, new_term: bool) -> dict[str, object]:
        now = StillClock()
        with Silo.open(store, plan, clock=now, new_term=new_term, catch_up=True) as silo:
            assert silo.status()["epsilon_spent"] == 0.0
            for _ in range(plan.rounds + 1):
                now.now += 3600
                silo.tick()
            assert silo.ended
            return silo.status()

    for status in (whole_term(PLAN.changed(privacy=None, trust="none"), False), whole_term(PLAN, True)):
        assert status["epsilon_all_terms"] is None
    data = json.loads(run("ledger", store, "--json").stdout)
    assert (data["in_the_clear"], data["spent"]["epsilon"]) == ([1], None)
    assert [term["term"] for term in data["terms"]] == [2]
    said = " ".join(run("ledger", store).stderr.split())
    assert "term 1: its plan has no budget, and its sums left the silo in the clear" in said
    assert said.endswith("for a user in every term (replace-one) nothing bounds what was spent.")


def test_a_silo_is_no_witness_of_itself(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, WHOLE)))
    Silo.open(tmp_path / "silo.db", PLAN).close()
    refused = run("ledger", file, "--witness", tmp_path / "silo.db")
    assert "witness must be the store of a mixer or an analyzer" in str(refused.exception)


def test_a_head_of_any_age_is_found_and_the_entries_since_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, WHOLE)))
    data = json.loads(run("ledger", file, "--head", WHOLE[4].hash, "--json").stdout)
    assert data["since_head"] == SYNCS - 5
    assert f"{SYNCS - 5} since the head you noted" in " ".join(
        run("ledger", file, "--head", WHOLE[4].hash).stdout.split()
    )
    assert str(run("ledger", file, "--head", "abc").exception).startswith("head must be a hash of 64")
    assert "missing at the end" in str(run("ledger", file, "--head", "ab" * 32).exception)


def test_ledger_names_the_adjacency_and_against_whom(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    other = [release(sync, term=2, adjacency="add-remove") for sync in range(SYNCS)]
    file.write_text("\n".join(map(to_json, chained([*(e.event for e in WHOLE), *other]))))
    data = json.loads(run("ledger", file, "--json").stdout)
    assert [term["adjacency"] for term in data["terms"]] == ["replace-one", "add-remove"]
    assert data["spent"]["adjacency"] == "replace-one"
    assert data["terms"][0]["against"] == ["everybody outside the silo"]
    said = " ".join(run("ledger", file).stderr.split())
    assert "term 1: spent against everybody outside the silo." in said
    assert "term(s) 2 count as replace-one in the total" in said
    assert "for a user in every term of these entries (replace-one) no more was spent than epsilon = " in said


def test_a_store_whose_ledger_has_lost_its_end_is_noticed_without_a_witness(tmp_path: Path) -> None:
    """The store has releases that the ledger does not have: it said that nothing had been spent."""
    now = StillClock()
    with Silo.open(tmp_path / "silo.db", PLAN, clock=now) as silo:
        now.now += 3600
        silo.tick()
        with silo.store.engine.transaction() as sql:
            sql.all("DELETE FROM ledger")
    assert "the entry of sync 0 of term 1 is missing" in str(run("ledger", tmp_path / "silo.db").exception)


def test_ledger_says_what_went_wrong(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, chained([*(e.event for e in WHOLE), release(0)]))))
    data = json.loads(run("ledger", file, "--json").stdout)
    assert data["terms"][0]["redrawn"] == [0]
    assert data["terms"][0]["overspent"]
    said = run("ledger", file)
    assert said.exit_code == 0


def test_ledger_names_what_was_given_up(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    lost = [release(sync, released=LOST + "ab" * 32) for sync in (3, 4)]
    file.write_text("\n".join(map(to_json, chained([*(e.event for e in WHOLE[:3]), *lost]))))
    (term,) = json.loads(run("ledger", file, "--json").stdout)["terms"]
    assert (term["released"], term["given_up"], term["redrawn"]) == (5, [3, 4], [])
    whole = tmp_path / "whole.jsonl"
    whole.write_text("\n".join(map(to_json, WHOLE[:5])))
    (kept,) = json.loads(run("ledger", whole, "--json").stdout)["terms"]
    assert (kept["given_up"], kept["spent"]) == ([], term["spent"])
    assert "sync(s) 3, 4 drawn in a copy of the store that was lost" in " ".join(run("ledger", file).stderr.split())


def federation_of(folder: Path) -> tuple[Path, PartyKeys]:
    """A federation file in which there is a silo `north`, and its keys."""
    founding.local(
        folder, Plan(2, 20, 2, Privacy(1.0, 0.1), schedule=clock(3600)), ["north", "south"], Timing(5.0, start=0.0)
    )
    return folder / "federation.json", PartyKeys.load(folder / "north" / "party.key")


def signed_by(keys: PartyKeys, events: list[Release]) -> list[Entry]:
    rows: list[LedgerRow] = []
    for event in events:
        rows.append(book.entry(rows[-1] if rows else None, event, keys.signer))
    return book.entries(rows)


def test_a_ledger_that_was_rewritten_is_noticed_by_its_signatures_and_by_witnesses(tmp_path: Path) -> None:
    """Two entries removed, sigma ten times as large, hashed anew: it reported 0.076 instead of 1."""
    federation, keys = federation_of(tmp_path / "f")
    events = [release(sync) for sync in range(SYNCS)]
    honest, store = signed_by(keys, events), tmp_path / "mixer.db"
    engine = open_engine(store)
    head = Head(SYNCS, bytes.fromhex(honest[-1].hash), bytes.fromhex(honest[-1].signature))
    assert SeenStore(engine, "").note([("north", SYNCS, head)]) == []
    engine.close()
    file = tmp_path / "ledger.jsonl"
    options = ("--federation", federation, "--witness", store)
    file.write_text("\n".join(map(to_json, honest)))
    data = json.loads(run("ledger", file, *options, "--json").stdout)
    assert (data["signatures"], data["witnessed"]) == (True, [SYNCS])
    assert "seen by others up to entry 12" in " ".join(run("ledger", file, *options).stdout.split())
    quiet = Gaussian(10 * COST.sigma, 10 * COST.own_sigma, COST.sensitivity)
    altered = [replace(event, cost=quiet) for event in events[:-2]]
    file.write_text("\n".join(map(to_json, chained(altered))))  # by somebody without the key
    assert run("ledger", file).exit_code == 0
    assert "not signed by the silo" in str(run("ledger", file, "--federation", federation).exception)
    file.write_text("\n".join(map(to_json, signed_by(keys, altered))))  # by the silo itself
    assert run("ledger", file, "--federation", federation).exit_code == 0
    assert "rewritten" in str(run("ledger", file, "--witness", store).exception)
    file.write_text("\n".join(map(to_json, honest[:-1])))  # an older copy
    assert "older copy" in str(run("ledger", file, "--witness", store).exception)
