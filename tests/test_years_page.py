"""What docs/years.md shows is what the commands and the library say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedbandit
from fedbandit import Plan, Privacy, clock
from fedbandit.cli.main import app
from fedbandit.protocol import mechanisms

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "years.md").read_text()
COMMANDS = re.findall(r"^(fedbandit .*)$", PAGE.replace("\\\n", " "), flags=re.MULTILINE)


def run(command: str) -> dict[str, list[dict[str, object]]]:
    result = CliRunner().invoke(app, [*shlex.split(command, comments=True)[1:], "--json"])
    assert result.exit_code == 0, (command, result.output)
    shown: dict[str, list[dict[str, object]]] = json.loads(result.stdout)
    return shown


def test_noise_of_people_who_come_back() -> None:
    planned = [command for command in COMMANDS if "--participations" in command]
    assert len(planned) == 2
    noises = []
    for command in planned:
        (said,) = re.findall(r"secure-sum: noise ([0-9.]+)", command)
        (row,) = [row for row in run(command)["plans"] if row["name"] == "secure-sum"]
        assert row["noise"] == pytest.approx(float(said), abs=0.05)
        noises.append(float(said))
    assert noises[1] < 0.6 * noises[0]
    for visits, apart, said in re.findall(r"\| (\d+) visits, (\d+) syncs apart \| 1 / ([0-9.]+) \|", PAGE):
        encoder = mechanisms.encoder("toeplitz", 365)
        norm = encoder.visits_norm(int(visits), int(apart))
        assert int(visits) * encoder.column_norm / norm == pytest.approx(float(said), abs=0.005)


def test_noise_of_sums_that_forget() -> None:
    rows = re.findall(r"\| (prefix sums|weight 0.97) \| ([0-9.]+) \| ([0-9.]+) \|", PAGE)
    assert len(rows) == 2
    for name, *said in rows:
        forget = 1.0 if name == "prefix sums" else 0.97
        found = [mechanisms.encoder("toeplitz", size, forget).worst_prefix for size in (365, 1095)]
        assert found == pytest.approx([float(number) for number in said], abs=0.005)


def test_a_hundred_years_are_as_noisy_as_one() -> None:
    plan = Plan(12, 365, 20, Privacy(1.0, 1e-6), mechanism="blt", schedule=clock(86_400), forget=0.97)
    year, century = (plan.changed(rounds=365 * years).noise_std for years in (1, 100))
    assert year <= century <= 1.001 * year


def test_noise_without_an_end() -> None:
    (command,) = [command for command in COMMANDS if "--endless" in command]
    (said,) = re.findall(r"secure-sum: noise ([0-9.]+)", command)
    (row,) = [row for row in run(command)["plans"] if row["name"] == "secure-sum"]
    assert row["noise"] == pytest.approx(float(said), abs=0.005)
    plan = Plan(12, 365, 20, Privacy(1.0, 1e-6), schedule=clock(86_400), forget=0.97, endless=True)
    assert plan.noise_std == pytest.approx(float(said), abs=0.005)
    assert f"({plan.encoder.touches} for a\nweight of 0.97)" in PAGE
    assert f"{plan.reach} for a weight of 0.97" in PAGE
    assert f"the last {plan.encoder.touches - 1} batches" in PAGE


def test_silos_that_differ_are_simulated_as_it_is_written() -> None:
    (command,) = [command for command in COMMANDS if "--differing" in command]
    curves = run(command.replace("--rounds 4000 --batch 100", "--rounds 60 --batch 20") + " --runs 2")["curves"]
    assert [curve["name"] for curve in curves] == ["secure-sum", "secure-sum, personal"]


def test_the_simulation_runs_as_it_is_written() -> None:
    (command,) = [command for command in COMMANDS if "--jump-at" in command]
    shorter = command.replace("--rounds 3000", "--rounds 60").replace("--jump-at 1500", "--jump-at 30 --runs 2")
    curves = run(shorter)["curves"]
    assert [curve["name"] for curve in curves] == ["secure-sum", "secure-sum, 0.96"]
    for curve in curves:
        assert {"mean", "stderr"} <= curve["regret_second_half"].keys()  # type: ignore[attr-defined]


def test_a_consortium_that_drifts_is_told_to_forget(tmp_path: Path) -> None:
    facts = "--silos 12 --people-per-day 20 --days 60 --dim 6 --epsilon 4 --delta 1e-6 --arms 10"
    out = tmp_path / "plan.toml"
    said = CliRunner().invoke(app, shlex.split(f"plan --best {facts} --drift 0.05 --out {out}"))
    assert said.exit_code == 0, said.output
    plan = Plan.load(out)
    assert 0.5 <= plan.forget < 1
    assert f"Each sync multiplies the weight of what was learnt before by {plan.forget:g}" in said.output
    assert plan.schedule.ratio == 1  # type: ignore[union-attr]
    again = CliRunner().invoke(app, ["simulate", "--plan", str(out), "--runs", "1", "--json"])
    assert again.exit_code == 0, again.output
    still = CliRunner().invoke(app, shlex.split(f"plan --best {facts}"))
    assert "what was learnt before" not in still.output


def test_drift_without_best_is_refused() -> None:
    refused = CliRunner().invoke(app, ["plan", "--drift", "0.1"])
    assert str(refused.exception) == "--drift has no effect without --best"


def test_the_second_term_is_played_as_it_is_written() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    shorter = code.replace("1000, 5", "100, 5").replace("runs=8", "runs=2, progress=lambda share: None")
    names: dict[str, object] = {"fb": fedbandit}
    exec(shorter, names)
    assert names["second"].before == 100  # type: ignore[attr-defined]


def test_the_commands_of_a_federation_are_there() -> None:
    said = {command.split()[2] for command in COMMANDS if command.split()[1] == "federation"}
    assert said == {"renew", "join", "admit", "accept", "dismiss", "new-keys", "rotate"}
    for command in said:
        result = CliRunner().invoke(app, ["federation", command, "--help"])
        assert result.exit_code == 0, command
        for line in (line for line in COMMANDS if line.split()[1:3] == ["federation", command]):
            flags = re.findall(r"--[a-z-]+", line.partition("#")[0])
            assert all(flag in result.output for flag in flags), line
