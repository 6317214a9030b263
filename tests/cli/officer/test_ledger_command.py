"""`fedbandit ledger`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from fedbandit.privacy.ledger import event_to_json, to_json
from tests.cli.officer.running import run
from tests.privacy.test_ledger import SYNCS, WHOLE, chained, release


def test_ledger_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, WHOLE)) + "\n")
    data = json.loads(run("ledger", file, "--head", WHOLE[-1].hash, "--json").stdout)
    assert data["entries"] == SYNCS
    assert data["spent"]["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert data["terms"][0]["left"] == pytest.approx(0.0, abs=1e-6)
    assert (data["terms"][0]["released"], data["terms"][0]["syncs"]) == (SYNCS, SYNCS)
    assert "12 of 12" in run("ledger", file).stdout
    file.write_text("\n".join(map(to_json, WHOLE[:4] + WHOLE[5:])))
    assert "removed" in str(run("ledger", file).exception)
    file.write_text(to_json(WHOLE[0]).replace("gaussian", "teapot"))
    assert "line 1: event kind" in str(run("ledger", file).exception)


def test_ledger_of_a_live_silo_s_database(tmp_path: Path) -> None:
    file = tmp_path / "silo.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE ledger (number INTEGER PRIMARY KEY, hash TEXT, previous TEXT, event TEXT)")
        rows = [(k, e.hash, e.previous, event_to_json(e.event)) for k, e in enumerate(WHOLE[:5])]
        database.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?)", rows)
    database.close()
    assert json.loads(run("ledger", file, "--json").stdout)["terms"][0]["released"] == 5


def test_a_database_without_a_ledger_and_a_file_without_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE other (number INTEGER)")
    database.close()
    assert "must be a silo's database" in str(run("ledger", file).exception)
    file.write_bytes(b"\xff\xfe")
    assert "must be text" in str(run("ledger", file).exception)


def test_ledger_says_what_went_wrong(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, chained([*(e.event for e in WHOLE), release(0)]))))
    data = json.loads(run("ledger", file, "--json").stdout)
    assert data["terms"][0]["redrawn"] == [0]
    assert data["terms"][0]["overspent"]
    said = run("ledger", file)
    assert said.exit_code == 0
