"""Tables fit 80 columns, `--wide` shows all of them, and neither breaks a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import SMALL, Command, assert_refused

LINES = "┏┃┡│└"


def widths(printed: str) -> list[int]:
    return [len(line) for line in printed.splitlines() if line[:1] in LINES and line]


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize(
    "arguments",
    [
        "plan",
        "plan --best --days 60 --visits 3",
        "attack",
        "attack redraw --trials 20",
        "paper list",
        "audit secure-sum --trials 100",
        f"simulate --protocols silo,secure-sum,sdp-vector-sum {' '.join(SMALL)}",
    ],
)
def test_it_fits(arguments: str, fedbandit: Command) -> None:
    said = fedbandit(*arguments.split())
    assert said.code == 0, said.err
    assert widths(said.out)
    assert max(widths(said.out)) <= 80


def test_wide_shows_what_does_not_fit(fedbandit: Command) -> None:
    narrow, wide = fedbandit("plan"), fedbandit("plan", "--wide")
    assert "mechanism, schedule, acting" in wide.out
    assert "mechanism, schedule, acting" not in narrow.out
    assert "--wide also shows: lambda, mechanism, schedule, acting." in narrow.err
    assert max(widths(wide.out)) > 80
    assert max(widths(fedbandit("plan").out)) <= 80, "once is for once"
    for name in ("private-adaptive", "sdp-vector-sum"):
        assert name in narrow.out


def test_brackets_in_a_name_are_part_of_it(fedbandit: Command, tmp_path: Path) -> None:
    """Half of all tables say "weight [kg]". As markup it was left out, and "[/kg]" ended the command."""
    schema = tmp_path / "schema.toml"
    for name in ("weight [kg]", "weight [/kg]", "[bold]weight"):
        schema.write_text(f'actions = ["low", "high"]\n[context."{name}"]\ntype = "number"\nlow = 0\nhigh = 1\n')
        said = fedbandit("plan", "--silos", "3", "--rounds", "20", "--schema", str(schema))
        assert said.code == 0, said.err
        assert name in said.out


def test_json_has_no_width(fedbandit: Command) -> None:
    assert_refused(fedbandit("plan", "--wide", "--json"), "--wide has no effect with --json")
    assert_refused(fedbandit("plan", "--json", "--wide"), "--wide has no effect with --json")
