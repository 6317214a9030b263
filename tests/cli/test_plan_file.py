"""Plans are read from JSON and TOML; anything else is refused in one line that says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedbandit import Plan, Privacy
from fedbandit._validate import ArgumentError
from fedbandit.cli.plan_file import read_plan


def test_a_plan_reads_back(tmp_path: Path) -> None:
    plan = Plan(5, 60, 3, Privacy(1.0, 1e-5), trust="silo")
    (tmp_path / "plan.json").write_text(json.dumps(plan.as_dict()))
    toml = ["silos = 5", "rounds = 60", "dim = 3", "trust = 'silo'", "[privacy]", "epsilon = 1.0", "delta = 1e-5"]
    (tmp_path / "plan.toml").write_text("\n".join(toml))
    assert read_plan(tmp_path / "plan.json") == read_plan(tmp_path / "plan.toml") == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "plan must be JSON or TOML"),
        ("[]", "plan must be a table of fields, got list"),
        ('{"silos": 2}', "plan must give 'rounds', 'dim'"),
        ('{"silos": 2, "rounds": 3, "dim": 1, "tea": 1}', "plan does not know 'tea'"),
        ('{"silos": 2, "rounds": 3, "dim": 1, "trust": []}', "trust must be one of"),
        ('{"silos": 2, "rounds": 3, "dim": 1, "mechanism": []}', "plan cannot be read|mechanism must"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=message) as refused:
        read_plan(file)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="plan must be readable"):
        read_plan(tmp_path / "nowhere.json")
