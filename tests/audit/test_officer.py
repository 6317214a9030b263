"""The commands as they are typed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fedbandit import Plan, Privacy
from fedbandit.cli import officer
from fedbandit.privacy.ledger import event_to_json, to_json

from .test_ledger import STEPS, WHOLE, chained, release

app = typer.Typer()
officer.register(app)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_audit_json_is_exactly_what_is_promised() -> None:
    result = run("audit", "local", "--trials", 500, "--seed", 3, "--workers", 1, "--json")
    data = json.loads(result.stdout)
    assert list(data) == ["name", "claimed", "epsilon_lower", "confidence", "trials", "verdict"]
    assert data["name"] == "local"
    assert data["claimed"] == {"epsilon": 1.0, "delta": 1e-5}
    assert (data["confidence"], data["trials"], data["verdict"]) == (0.95, 500, "holds")
    assert json.loads(run("audit", "local", "--trials", 500, "--seed", 3, "--workers", 1, "--json").stdout) == data


def test_audit_for_people_and_for_pipelines() -> None:
    result = run("audit", "fed-lin-ucb", "--trials", 500, "--workers", 1)
    assert result.exit_code == 0
    assert "broken" in result.stdout
    assert run("audit", "fed-lin-ucb", "--trials", 500, "--workers", 1, "--strict").exit_code == 1


def test_audit_of_a_plan_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(Plan(5, 60, 3, Privacy(1.0, 1e-5), trust="silo").as_dict()))
    data = json.loads(run("audit", file, "--trials", 200, "--workers", 1, "--json").stdout)
    assert (data["name"], data["verdict"]) == ("plan", "holds")


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "nonsense"),
        ("audit", "isolated"),
        ("audit", "silo", "--epsilon", -1),
        ("audit", "local", "--trials", 0),
        ("audit", "local", "--workers", 0),
        ("audit", "local", "--seed", -1),
        ("attack", "nonsense"),
        ("ledger", "nowhere.jsonl"),
        ("certificate", "nowhere.json"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[object, ...]) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, ValueError)
    assert "\n" not in str(result.exception)


def test_attacks_are_listed_and_run() -> None:
    listed = json.loads(run("attack", "--json").stdout)["attacks"]
    assert len(listed) == 9
    data = json.loads(run("attack", "redraw", "--trials", 400, "--json").stdout)
    assert data["exposed"] > 0.9 > data["defended"]
    assert "Defence" in run("attack", "low-bits", "--trials", 100).stdout
    assert run("attack").exit_code == 0


def test_ledger_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, WHOLE)) + "\n")
    data = json.loads(run("ledger", file, "--head", WHOLE[-1].hash, "--json").stdout)
    assert data["entries"] == STEPS
    assert data["spent"]["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert data["terms"][0]["left"] == pytest.approx(0.0, abs=1e-6)
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


def test_ledger_says_what_went_wrong(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("\n".join(map(to_json, chained([*(e.event for e in WHOLE), release(0)]))))
    data = json.loads(run("ledger", file, "--json").stdout)
    assert data["terms"][0]["redrawn"] == [0]
    assert data["terms"][0]["overspent"]


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_certificate_is_one_page_of_computed_figures(tmp_path: Path, ending: str) -> None:
    plan = Plan(silos=20, rounds=500, dim=4, privacy=Privacy(1.0, 1e-5), colluding=3)
    file = tmp_path / f"ours.{ending}"
    file.write_text(json.dumps(plan.as_dict()) if ending == "json" else _toml(plan.as_dict()))
    result = run("certificate", file, "--out", tmp_path, "--trials", 300, "--seed", 4, "--workers", 1)
    assert result.exit_code == 0, result.exception
    page = (tmp_path / "ours.certificate.md").read_text()
    assert page.strip() == result.stdout.strip()
    for text in (*plan.guarantee.steps, *plan.guarantee.assumes, plan.hash, "seed 4", "300 times", "Verdict: holds"):
        assert text in page
    web = (tmp_path / "ours.certificate.html").read_text()
    assert web.startswith("<!doctype html>")
    assert "http" not in web.replace("http-equiv", "")  # nothing is loaded from elsewhere


def test_certificate_says_plainly_that_there_is_no_promise(tmp_path: Path) -> None:
    plan = Plan(5, 100, 2, Privacy(1.0, 1e-5), trust="silo", mechanism="tree", calibration="paper", acting="eager")
    file = tmp_path / "leaky.json"
    file.write_text(json.dumps(plan.as_dict()))
    page = run("certificate", file, "--out", tmp_path, "--trials", 300, "--workers", 1).stdout
    assert page.startswith("# No privacy certificate")
    assert "No privacy guarantee" in page


def _toml(data: dict[str, Any]) -> str:
    plain = {name: value for name, value in data.items() if not isinstance(value, dict) and value is not None}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    for name, table in data.items():
        if isinstance(table, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines)
