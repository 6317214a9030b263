"""What an officer types wrong is one line, whichever the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedbandit import Plan, Privacy, every
from fedbandit._validate import ArgumentError
from tests.cli.harness import Command, assert_refused
from tests.cli.officer.running import run


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


PLAN = Plan(3, 20, 2, Privacy(1.0, 1e-5), trust="silo", schedule=every(5))


@pytest.mark.parametrize("option", ["--epsilon", "--delta"])
@pytest.mark.parametrize("more", [(), ("--live",)])
def test_a_plan_s_budget_is_its_own(option: str, more: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(PLAN.as_dict()))
    result = run("audit", file, option, 0.5, *more)
    assert isinstance(result.exception, ArgumentError)
    assert str(result.exception).startswith(f"{option} must not be given with a plan")


def test_all_includes_the_live_path() -> None:
    result = run("audit", "--all", "--live")
    assert isinstance(result.exception, ArgumentError)
    assert str(result.exception).startswith("--live must not be given with --all")


@pytest.mark.parametrize("command", ["audit", "certificate"])
@pytest.mark.parametrize(("ending", "begin"), [("json", "["), ("toml", "a = [")])
def test_a_file_that_is_too_deep_is_one_line(command: str, ending: str, begin: str, tmp_path: Path) -> None:
    file = tmp_path / f"deep.{ending}"
    file.write_text(begin + "[" * 100_000)
    result = run(command, file)
    assert isinstance(result.exception, ArgumentError)
    assert "\n" not in str(result.exception)


def test_a_plan_that_is_not_there_is_no_unknown_protocol(fedbandit: Command) -> None:
    assert_refused(
        fedbandit("audit", "plam.toml"), "plan must be readable, got 'plam.toml' (No such file or directory)"
    )
