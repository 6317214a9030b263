"""The command line: JSON of a fixed shape, and every bad input one line and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from fedbandit.cli import main as cli
from fedbandit.planner.catalogue import NAMES
from fedbandit.simulate import runner

PLAN_KEYS = [
    *("name", "trust", "mechanism", "schedule", "acting", "calibration", "adjacency", "epsilon", "delta", "noise"),
    *("lambda", "syncs", "bytes", "guarantee", "applicable", "reason"),
]
USUAL = ["--silos", "100", "--rounds", "10000", "--dim", "10"]
SMALL = ["--silos", "3", "--rounds", "20", "--dim", "3", "--arms", "5", "--runs", "2"]


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture
def fedbandit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: its exit code and what it wrote."""

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["fedbandit", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return Said(int(stopped.value.code or 0), captured.out, captured.err)

    return run


def test_plan_prints_one_row_a_protocol(fedbandit: Command) -> None:
    said = fedbandit("plan", *USUAL, "--epsilon", "1", "--delta", "0.1", "--json")
    assert said.code == 0
    assert list(said.json) == ["plans"]
    rows = {row["name"]: row for row in said.json["plans"]}
    assert list(rows) == list(NAMES)
    for row in rows.values():
        assert sorted(row) == sorted(PLAN_KEYS)
        assert row["applicable"] == (row["noise"] is not None)
    amplified = rows["sdp-amplified"]
    assert not amplified["applicable"]
    assert amplified["guarantee"] is None
    assert "epsilon must be at most about" in amplified["reason"]
    silent = {name for name, row in rows.items() if row["applicable"] and row["guarantee"] is None}
    assert silent == {"fed-lin-ucb", "ldp-eager", "dubey", "isolated"}
    for name in silent:
        assert rows[name]["reason"].startswith("No privacy guarantee: ")
    for name in set(rows) - silent - {"sdp-amplified"}:
        assert (rows[name]["epsilon"], rows[name]["delta"], rows[name]["adjacency"]) == (1.0, 0.1, "replace-one")
        assert "(1, 0.1)-differentially private" in rows[name]["guarantee"]
        assert rows[name]["reason"] is None
    assert rows["ldp"]["syncs"] == 400
    assert rows["ldp"]["bytes"] == 400 * 65 * 8
    assert rows["dubey"]["syncs"] is rows["dubey"]["bytes"] is None  # the data decide


def test_the_numbers_it_is_to_show(fedbandit: Command) -> None:
    def noise(epsilon: str, delta: str) -> dict[str, float]:
        said = fedbandit("plan", *USUAL, "--batch", "25", "--epsilon", epsilon, "--delta", delta, "--json")
        return {row["name"]: row["noise"] for row in said.json["plans"]}

    usual = noise("1", "0.1")
    assert usual["ldp"] / usual["silo"] >= 7
    assert usual["silo"] / usual["secure-sum"] == pytest.approx(10)
    assert usual["sdp-vector-sum"] == pytest.approx(2 * 82_200 * 8**0.5, rel=0.01)
    amplified = noise("0.001", "0.0001")["sdp-amplified"]
    assert amplified == pytest.approx(289_000 * 10 * 8**0.5, rel=0.01)  # a hundred silos, eight p-sums


def test_plan_for_people(fedbandit: Command) -> None:
    said = fedbandit("plan", "--silos", "20", "--rounds", "500", "--dim", "4")
    assert said.code == 0
    for name in NAMES:
        assert name in said.out
    assert "sdp-amplified: not here." in said.out
    proof = fedbandit("plan", "--silos", "20", "--rounds", "500", "--dim", "4", "--explain", "secure-sum")
    assert "Because:" in proof.out
    assert "Assuming:" in proof.out
    none = fedbandit("plan", "--silos", "20", "--rounds", "500", "--dim", "4", "--explain", "ldp-eager")
    assert none.out.startswith("No privacy guarantee: ")


def test_non_unique_users_from_the_command_line(fedbandit: Command) -> None:
    shape = ("plan", "--silos", "9", "--rounds", "100", "--dim", "3", "--json")
    once = {row["name"]: row["noise"] for row in fedbandit(*shape).json["plans"]}
    said = fedbandit(*shape, "--participations", "3", "--silos-per-user", "4")
    often = {row["name"]: row for row in said.json["plans"]}
    assert often["silo"]["noise"] == pytest.approx(3 * 2 * once["silo"])
    assert often["secure-sum"]["noise"] == pytest.approx(3 * 4 * once["secure-sum"])
    assert not often["sdp-vector-sum"]["applicable"]
    assert "participations must be 1" in often["sdp-vector-sum"]["reason"]


def test_simulate_every_protocol_of_the_catalogue(fedbandit: Command) -> None:
    names = [name for name in NAMES if name != "sdp-amplified"]
    said = fedbandit("simulate", "--protocols", ",".join(names), *SMALL, "--seed", "5", "--json")
    assert said.code == 0
    assert list(said.json) == ["curves"]
    assert [curve["name"] for curve in said.json["curves"]] == names
    for curve in said.json["curves"]:
        assert sorted(curve) == ["name", "regret", "syncs"]
        assert sorted(curve["regret"]) == ["mean", "stderr"]
        assert curve["regret"]["mean"] > 0
    again = fedbandit("simulate", "--protocols", ",".join(names), *SMALL, "--seed", "5", "--json")
    assert again.json == said.json


def test_amplification_can_be_simulated_where_its_theorem_reaches(fedbandit: Command) -> None:
    arguments = ("--silos", "200", "--rounds", "20", "--dim", "2", "--arms", "3", "--runs", "1")
    said = fedbandit(
        "simulate", "--protocols", "sdp-amplified", *arguments, "--epsilon", "0.002", "--delta", "1e-4", "--json"
    )
    assert said.code == 0
    (curve,) = said.json["curves"]
    assert curve["regret"]["stderr"] is None  # one run has none


def test_a_batch_puts_all_of_them_on_one_schedule(fedbandit: Command) -> None:
    said = fedbandit("simulate", "--protocols", "ldp,silo,super-agent,isolated", *SMALL, "--batch", "6", "--json")
    assert {curve["name"]: curve["syncs"] for curve in said.json["curves"]} == {
        "ldp": 4,  # 6, 12, 18 and a shorter last batch
        "silo": 4,
        "super-agent": 4,
        "isolated": 1,
    }
    assert fedbandit("simulate", "--protocols", "silo", *SMALL, "--json").json["curves"][0]["syncs"] > 10


def test_a_toml_file_and_options_that_override_it(fedbandit: Command, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(
        'protocols = ["ldp", "silo"]\nsilos = 3\nrounds = 20\ndim = 3\narms = 5\nruns = 2\nseed = 7\nepsilon = 2\n'
    )
    from_file = fedbandit("simulate", file, "--json")
    as_options = fedbandit("simulate", "--protocols", "ldp,silo", *SMALL, "--seed", "7", "--epsilon", "2", "--json")
    assert from_file.json == as_options.json
    overridden = fedbandit("simulate", file, "--seed", "8", "--protocols", "silo", "--json")
    assert [curve["name"] for curve in overridden.json["curves"]] == ["silo"]
    assert overridden.json["curves"][0] != from_file.json["curves"][1]


def test_results_are_written_where_asked(fedbandit: Command, tmp_path: Path) -> None:
    said = fedbandit("simulate", "--protocols", "ldp,fed-lin-ucb", *SMALL, "--out", tmp_path / "new" / "folder")
    assert said.code == 0
    assert "regret / T" in said.out
    folder = tmp_path / "new" / "folder"
    assert sorted(file.name for file in folder.iterdir()) == ["plans.json", "regret.parquet", "regret.svg"]
    assert set(pl.read_parquet(folder / "regret.parquet")["name"]) == {"ldp", "fed-lin-ucb"}


def test_rewards_without_bound_are_remarked_on_standard_error_alone(fedbandit: Command) -> None:
    said = fedbandit("simulate", "--protocols", "fed-lin-ucb", *SMALL, "--rewards", "gaussian", "--json")
    assert said.json["curves"]
    assert "no guarantee covers such users" in said.err


def test_an_interruption_reports_what_is_finished(fedbandit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RUNS_AT_ONCE", 1)
    real, played = runner.Part.play, []

    def interrupted(part: runner.Part, progress: Any) -> Any:
        if played:
            raise KeyboardInterrupt
        played.append(part)
        return real(part, progress)

    monkeypatch.setattr(runner.Part, "play", interrupted)
    said = fedbandit("simulate", "--protocols", "fed-lin-ucb", *SMALL)
    assert said.code == 0
    assert "1 of 2 runs" in said.out
    nothing = fedbandit("simulate", "--protocols", "fed-lin-ucb", *SMALL)
    assert nothing.code == 130
    assert nothing.err.strip() == "interrupted before anything was finished"


PLAN_ERRORS = [
    (["--epsilon", "0"], "epsilon must be a finite number > 0, got 0.0"),
    (["--epsilon", "-1"], "epsilon must be a finite number > 0, got -1.0"),
    (["--epsilon", "nan"], "epsilon must be a finite number > 0, got nan"),
    (["--delta", "0"], "delta must lie strictly between 0 and 1, got 0.0"),
    (["--delta", "1"], "delta must lie strictly between 0 and 1, got 1.0"),
    (["--delta", "-0.5"], "delta must lie strictly between 0 and 1, got -0.5"),
    (["--silos", "0"], "silos must be a whole number >= 1, got 0"),
    (["--rounds", "0"], "rounds must be a whole number >= 1, got 0"),
    (["--dim", "0"], "dim must be a whole number >= 1, got 0"),
    (["--rounds", "many"], "'--rounds'"),
    (["--adjacency", "near"], "adjacency must be one of replace-one, add-remove; got 'near'"),
    (["--participations", "0"], "participations must be a whole number >= 1, got 0"),
    (["--silos-per-user", "1000"], "silos_per_user must be at most the 100 silos, got 1000"),
    (["--batch", "0"], "batch must be a whole number >= 1, got 0"),
    (["--batch", "10001"], "batch must be at most the horizon of 10000 rounds, got 10001"),
    (["--explain", "magic"], "protocol must be one of fed-lin-ucb"),
    (["--colour", "red"], "No such option: --colour"),
]
SIMULATE_ERRORS = [
    (["--epsilon", "0"], "epsilon must be a finite number > 0, got 0.0"),
    (["--delta", "2"], "delta must lie strictly between 0 and 1, got 2.0"),
    (["--protocols", "ldp,magic"], "protocols must be one of fed-lin-ucb"),
    (["--protocols", ""], "protocols must be one of fed-lin-ucb"),
    (["--protocols", "sdp-amplified"], "silos must be more: no epsilon is in reach for trust 'shuffle'"),
    (["--batch", "21"], "batch must be at most the horizon of 20 rounds, got 21"),
    (["--dim", "1"], "dim must be a whole number >= 2, got 1"),
    (["--arms", "0"], "arms must be a whole number >= 1, got 0"),
    (["--runs", "0"], "runs must be a whole number >= 1, got 0"),
    (["--seed", "-1"], "seed must be a whole number >= 0, got -1"),
    (["--rewards", "poisson"], "rewards must be one of bernoulli, gaussian, clipped, exact; got 'poisson'"),
    (["--contexts", "stale"], "contexts must be one of fresh, fixed; got 'stale'"),
    (["--confidence", "high"], "confidence must be one of theory, proof, practical"),
    (["--precision", "half"], "precision must be one of float32, float64; got 'half'"),
    (["--adjacency", "near"], "adjacency must be one of replace-one, add-remove; got 'near'"),
    (["--silos", "1.5"], "'--silos'"),
]


def assert_refused(said: Said, message: str) -> None:
    assert said.code == 2
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert message in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("json_too", [False, True], ids=["table", "json"])
@pytest.mark.parametrize(("arguments", "message"), PLAN_ERRORS)
def test_bad_input_to_plan(arguments: list[str], message: str, json_too: bool, fedbandit: Command) -> None:
    assert_refused(fedbandit("plan", *arguments, *(["--json"] if json_too else [])), message)


@pytest.mark.parametrize(("arguments", "message"), SIMULATE_ERRORS)
def test_bad_input_to_simulate_leaves_nothing_behind(
    arguments: list[str], message: str, fedbandit: Command, tmp_path: Path
) -> None:
    said = fedbandit("simulate", "--protocols", "ldp", *SMALL, *arguments, "--json", "--out", tmp_path / "folder")
    assert_refused(said, message)
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("silo = 3", "does not know 'silo'; it takes adjacency, arms,"),
        ("[plan]\nsilos = 3", "does not know 'plan'"),
        ('silos = "three"', "silos must be of type int, got 'three'"),
        ("silos = 3.5", "silos must be of type int, got 3.5"),
        ("epsilon = true", "epsilon must be of type float, got True"),
        ('protocols = "ldp"', "protocols must be of type"),
        ('protocols = ["magic"]', "protocols must be one of fed-lin-ucb"),
        ("protocols = [1]", "protocols must be one of fed-lin-ucb"),
        ("protocols = []", "at least one"),
        ("epsilon = -1", "epsilon must be a finite number > 0, got -1"),
        ("epsilon = nan", "epsilon must be a finite number > 0, got nan"),
        ("silos = ", "file must be TOML"),
        ("silos = 3\nsilos = 4", "file must be TOML"),
    ],
)
def test_bad_toml(text: str, message: str, fedbandit: Command, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    assert_refused(fedbandit("simulate", file, "--json"), message)


def test_files_that_cannot_be_read(fedbandit: Command, tmp_path: Path) -> None:
    assert_refused(fedbandit("simulate", tmp_path / "nowhere.toml"), "file must be readable, got ")
    assert_refused(fedbandit("simulate", tmp_path), "file must be readable, got ")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert_refused(fedbandit("simulate", binary), "file must be TOML")


def test_a_folder_that_cannot_be_written(fedbandit: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for out in (tmp_path / "file", tmp_path / "file" / "under"):
        said = fedbandit("simulate", "--protocols", "ldp", *SMALL, "--out", out)
        assert_refused(said, "out must be a folder that can be written, got ")
    assert (tmp_path / "file").read_text() == "not a folder"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_no_command_says_what_there_is(fedbandit: Command) -> None:
    said = fedbandit()
    assert said.code == 0
    assert "plan" in said.out
    assert "simulate" in said.out
    assert fedbandit("--version").out.startswith("fedbandit 0.")
    assert_refused(fedbandit("dance"), "No such command")


def test_as_a_program_of_its_own() -> None:
    """One process each: the exit codes and streams that a shell sees."""
    program = [sys.executable, "-c", "from fedbandit.cli.main import main; main()"]
    good = subprocess.run(
        [*program, "simulate", "--protocols", "isolated", *SMALL, "--json"], capture_output=True, text=True, timeout=300
    )
    assert good.returncode == 0
    assert json.loads(good.stdout)["curves"][0]["name"] == "isolated"
    bad = subprocess.run([*program, "plan", "--epsilon", "-1"], capture_output=True, text=True, timeout=300)
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr == "error: epsilon must be a finite number > 0, got -1.0\n"
