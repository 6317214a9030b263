"""`fedbandit new`: a starting schema that holds no number of the data, and is refused until ranges are stated."""

from __future__ import annotations

import tomllib
from pathlib import Path

import polars as pl
import pytest

from fedbandit.problem import Schema
from tests.cli.harness import Command, assert_refused

ROWS = 60
PATIENTS = pl.DataFrame(
    {
        "id": [f"p{number}" for number in range(ROWS)],
        "age": [17.25 + number for number in range(ROWS)],
        "smoker": [number % 2 for number in range(ROWS)],
        "ward": ["A", "B", "C", "D", None, "E"] * (ROWS // 6 - 1) + ["Zorn's own room", *["A"] * 5],
        "code": [f"J{number % 30}" for number in range(ROWS)],
        "country": ["NO"] * ROWS,
        "drug given": ["high", "low", "none"] * (ROWS // 3),
        "reward": [0.5] * ROWS,
    }
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "patients.csv"
    PATIENTS.write_csv(file)
    return file


def stated(text: str) -> str:
    """What a person does with it."""
    return text.replace('low = "?"', "low = 0").replace('high = "?"', "high = 120")


def test_types_and_levels_are_proposed_and_ranges_are_not(fedbandit: Command, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.toml"
    said = fedbandit("new", str(table), "--action", "drug given", "--leave-out", "reward", "--out", str(out))
    assert said.code == 0
    assert 'state the 2 numbers marked "?"' in said.out
    text = out.read_text()
    assert max(len(line) for line in text.splitlines()) <= 80, "it is read in a terminal"
    found = tomllib.loads(text)
    assert found["actions"] == ["high", "low", "none"]
    assert found["context"] == {
        "age": {"type": "number", "low": "?", "high": "?"},
        "smoker": {"type": "category", "levels": ["0", "1"]},
        "ward": {"type": "category", "levels": ["A"], "missing": True},
        "code": {"type": "hashed", "columns": 16},
    }
    assert "Zorn" not in text, "a value that one row has"
    assert "17.25" not in text
    assert "# id is different in every row" in text
    assert "# country is the same in all rows: left out" in text
    with pytest.raises(ValueError, match="low must be a finite number, stated by people who know it, got '\\?'"):
        Schema.from_dict(found)
    assert Schema.from_dict(tomllib.loads(stated(text))).dim == 3 * (1 + 1 + 3 + 3 + 16)


def test_planning_with_it_waits_for_the_ranges(fedbandit: Command, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.toml"
    fedbandit("new", str(table), "--action", "drug given", "--leave-out", "reward", "--out", str(out))
    small = ("--silos", "12", "--rounds", "2000", "--delta", "1e-5")
    assert_refused(
        fedbandit("plan", "--schema", str(out), *small), "context.age low must be a finite number, stated by"
    )
    out.write_text(stated(out.read_text()))
    said = fedbandit("plan", "--schema", str(out), *small, "--json")
    report = said.json["schema"]
    assert report["dim"] == 72
    assert report["columns"][0] == "action=high"
    assert {one["name"] for one in report["fields"]} == {"age", "smoker", "ward", "code"}
    assert report["projections"]
    for_people = fedbandit("plan", "--schema", str(out), *small)
    assert "rounds it costs" in for_people.out
    assert "too many columns for the budget; a public projection to fewer may help" in for_people.out
    setting = ("--silos", "100", "--days", "60", "--delta", "1e-5")
    chosen = fedbandit("plan", "--best", "--schema", str(out), *setting, "--json").json
    assert chosen["plan"]["schema"]["actions"] == ["high", "low", "none"]
    assert chosen["schema"]["dim"] == 72
    refused = fedbandit("plan", "--schema", str(out), "--dim", "5")
    assert_refused(refused, "--dim has no effect with --schema, which gives the dimension")


def test_odd_names_are_quoted(fedbandit: Command, tmp_path: Path) -> None:
    file, out = tmp_path / "t.csv", tmp_path / "s.toml"
    pl.DataFrame({"a.b\\ [c]": list(range(9)), "größe": ["x\ny"] * 5 + ["z"] * 4}).write_csv(file)
    assert fedbandit("new", str(file), "--out", str(out)).code == 0
    assert set(tomllib.loads(out.read_text())["context"]) == {"a.b\\ [c]", "größe"}


def test_levels_are_written_as_they_are_compared_and_columns_as_they_can_be_read(
    fedbandit: Command, tmp_path: Path
) -> None:
    """1.0 is the level 1, 01 is not, one word among numbers does not make words of them."""
    file, out = tmp_path / "t.csv", tmp_path / "s.toml"
    lines = [
        f'{number % 2}.0,0{number % 3},{number if number else "?"},"{number},5",2024-01-{number % 28 + 1:02},'
        f"{('None', 'low')[number % 2]}"
        for number in range(40)
    ]
    file.write_text("\n".join(["flag,code,age,weight,day,dose", *lines]))
    assert fedbandit("new", str(file), "--action", "dose", "--out", str(out)).code == 0
    found = tomllib.loads(out.read_text())
    assert found["actions"] == ["None", "low"]
    assert found["context"] == {
        "flag": {"type": "category", "levels": ["0", "1"]},
        "code": {"type": "category", "levels": ["00", "01", "02"]},
        "age": {"type": "number", "low": "?", "high": "?", "missing": True},
    }
    assert "# weight holds numbers with a decimal comma" in out.read_text()
    assert "# day holds dates" in out.read_text()


def test_what_cannot_be_read_or_written_is_refused(fedbandit: Command, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.toml"
    assert_refused(fedbandit("new", str(tmp_path / "none.csv"), "--out", str(out)), "table must be a file that can be")
    assert_refused(fedbandit("new", str(table), "--action", "dose", "--out", str(out)), "column must be one of the tab")
    empty = tmp_path / "empty.csv"
    empty.write_text("a,b\n")
    assert_refused(fedbandit("new", str(empty), "--out", str(out)), "table must have a header and rows")
    (tmp_path / "t.parquet").write_text("no")
    assert_refused(fedbandit("new", str(tmp_path / "t.parquet"), "--out", str(out)), "table must be a CSV or Pa")
    assert not out.exists()
    assert fedbandit("new", str(table), "--out", str(out)).code == 0
    assert_refused(fedbandit("new", str(table), "--out", str(out)), "out must not exist yet")
    assert_refused(
        fedbandit("new", str(table), "--out", str(tmp_path / "no" / "s.toml")), "out must be a file that can"
    )
