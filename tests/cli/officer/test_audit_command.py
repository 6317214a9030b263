"""`fedbandit audit`."""

from __future__ import annotations

import json
from pathlib import Path

from fedbandit import Plan, Privacy
from tests.cli.officer.running import run


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
