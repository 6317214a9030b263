"""`fedbandit replay`: from a table, a schema and a plan to what it would have been worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import Command, assert_refused
from tests.evaluation.tables import SCHEMA, table

SCHEMA_TOML = """
actions = ["drug", "rest"]
[context.age]
type = "number"
low = -1
high = 1
knots = 2
[context.sex]
type = "category"
levels = ["f", "m"]
other = false
"""
PLAN_TOML = """
confidence = "practical"
centre = 0.5
schedule = { kind = "growing", ratio = 1.2 }
privacy = { epsilon = 2.0, delta = 1e-4 }
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    table(900).write_csv(tmp_path / "table.csv")
    (tmp_path / "schema.toml").write_text(SCHEMA_TOML)
    (tmp_path / "plan.toml").write_text(PLAN_TOML)
    return [
        str(tmp_path / "table.csv"), "--schema", str(tmp_path / "schema.toml"), "--plan", str(tmp_path / "plan.toml"),
        "--silo-column", "clinic", "--runs", "3",
    ]  # fmt: skip


def test_a_table_with_all_outcomes(files: list[str], fedbandit: Command, tmp_path: Path) -> None:
    picture, report = tmp_path / "earned.svg", tmp_path / "earned.html"
    options = ["--outcomes", "out_", "--always", "drug", "--compare", "ldp", "--plot", str(picture)]
    options += ["--html", str(report)]
    said = fedbandit("replay", *files, *options, "--json").json
    assert said["kind"] == "known"
    assert set(said["worth"]) == {"federation", "ldp", "each silo alone", "always drug", "best linear policy"}
    assert said["excess"]["always drug"]["value"] > 0
    assert said["plans"]["federation"]["silos"] == 3
    assert said["plans"]["federation"]["schema"] == json.loads(json.dumps(SCHEMA.as_dict()))
    assert picture.exists()
    page = report.read_text()
    assert all(f">{name}<" in page for name in said["worth"])
    assert said["promises"]["federation"][:30] in page
    assert f"{said['worth']['federation']['value']:.4g}" in page
    cheaper = fedbandit("replay", *files, "--outcomes", "out_", "--epsilon", "0.1", "--json").json
    assert cheaper["plans"]["federation"]["privacy"]["epsilon"] == 0.1
    assert cheaper["worth"]["federation"]["value"] < said["worth"]["federation"]["value"]


def test_tables_of_what_was_done(files: list[str], fedbandit: Command) -> None:
    tossed = fedbandit("replay", *files, "--action", "tossed", "--reward", "toss_paid", "--propensity", "toss_chance")
    assert "randomised outcomes" in tossed.out
    assert "practice" in tossed.out
    judged = fedbandit("replay", *files, "--action", "judged", "--reward", "paid", "--delay", "5", "--missing", "0.1")
    assert "everything that influenced both the choice of an action" in judged.out
    times = ["--time", "day", "--reward-time", "known"]
    assert "observed outcomes" in fedbandit("replay", *files, "--action", "judged", "--reward", "paid", *times).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--right", "right", "--bands", "<1,<2"], "bands must be one fewer than the 2 actions, got 2"),
        (["--outcomes", "out_", "--bands", "<1"], "--bands has no effect without --right"),
        (["--outcomes", "out_", "--always", "surgery"], "always must be one of drug, rest"),
        (["--outcomes", "out_", "--compare", "magic"], "protocol must be one of"),
        (["--action", "judged", "--reward", "paid", "--time", "day", "--reward-time", "known", "--delay", "3"],
         "--delay has no effect with --reward-time"),
        (["--outcomes", "out_", "--epsilon", "-1"], "epsilon must be a finite number > 0, got -1.0"),
        (["--outcomes", "out_", "--runs", "0"], "runs must be a whole number >= 1, got 0"),
        (["--outcomes", "out_", "--plot", "x.gif"], "plot must end in"),
    ],
)  # fmt: skip
def test_refusals(files: list[str], options: list[str], message: str, fedbandit: Command) -> None:
    assert_refused(fedbandit("replay", *files, *options), message)


def test_a_schema_is_needed(files: list[str], fedbandit: Command, tmp_path: Path) -> None:
    without = [files[0], *files[3:]]
    assert_refused(
        fedbandit("replay", *without, "--outcomes", "out_"), "schema must be given, by --schema or in the plan"
    )
    (tmp_path / "schema.toml").write_text("actions = 3")
    assert_refused(fedbandit("replay", *files, "--outcomes", "out_"), "actions must be a list of names, got 3")
    (tmp_path / "plan.toml").write_text("=")
    assert_refused(fedbandit("replay", *files, "--outcomes", "out_"), "plan must be JSON or TOML")


def test_the_option_that_is_wrong_or_missing_is_named(files: list[str], fedbandit: Command) -> None:
    table, _, schema, *_ = files
    known = ("--silo-column", "clinic", "--outcomes", "out_")
    assert_refused(fedbandit("replay", "nowhere.csv", "--schema", schema, *known), "table must be a file that can be")
    assert_refused(fedbandit("replay", table, "--schema", "nowhere.toml", *known), "schema must be readable, got ")
    assert_refused(fedbandit("replay", table, "--schema", schema, *known), "epsilon must be given, by --epsilon or in")
