"""`fedbandit simulate`: what it prints and writes, and every bad input one line and exit code 2."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedbandit.cli.main import loaded
from fedbandit.cli.researcher.experiment import Experiment
from fedbandit.presets import NAMES
from fedbandit.simulator import runner
from tests.cli.harness import SMALL, Command, assert_refused


def test_simulate_every_protocol_of_the_catalogue(fedbandit: Command) -> None:
    names = [name for name in NAMES if name != "sdp-amplified"]
    said = fedbandit("simulate", "--protocols", ",".join(names), *SMALL, "--seed", "5", "--json")
    assert said.code == 0
    assert list(said.json) == ["curves"]
    assert [curve["name"] for curve in said.json["curves"]] == names
    for curve in said.json["curves"]:
        assert sorted(curve) == ["name", "regret", "regret_second_half", "syncs"]
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


def test_the_one_sync_of_silos_that_stay_alone_is_explained(fedbandit: Command) -> None:
    said = [fedbandit("simulate", "--protocols", names, *SMALL) for names in ("isolated,silo", "silo")]
    assert ["stay alone send nothing: their one sync is the end of the run" in one.err for one in said] == [True, False]


def test_rewards_without_bound_are_remarked_on_standard_error_alone(fedbandit: Command) -> None:
    said = fedbandit("simulate", "--protocols", "fed-lin-ucb", *SMALL, "--rewards", "gaussian", "--json")
    assert said.json["curves"]
    assert "no guarantee covers such users" in said.err


def test_an_interruption_reports_what_is_finished(fedbandit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RUNS_AT_ONCE", 1)
    real = runner.Job.play
    played: list[runner.Job] = []

    def interrupted(job: runner.Job, progress: Any) -> Any:
        if played:
            raise KeyboardInterrupt
        played.append(job)
        return real(job, progress)

    monkeypatch.setattr(runner.Job, "play", interrupted)
    said = fedbandit("simulate", "--protocols", "fed-lin-ucb", *SMALL)
    assert said.code == 0
    assert "1 of 2 runs" in said.out
    nothing = fedbandit("simulate", "--protocols", "fed-lin-ucb", *SMALL)
    assert nothing.code == 130
    assert nothing.err.strip() == "interrupted before anything was finished"


SIMULATE_ERRORS = [
    (["--epsilon", "0"], "epsilon must be a finite number > 0, got 0.0"),
    (["--delta", "2"], "delta must lie strictly between 0 and 1, got 2.0"),
    (["--protocols", "ldp,magic"], "protocols must be one of fed-lin-ucb"),
    (["--protocols", ""], "protocols must be one of fed-lin-ucb"),
    (["--protocols", "sdp-amplified"], "silos must be more than 3 for trust 'shuffle': no epsilon is in reach"),
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
        ("silo = 3", "does not know 'silo' (did you mean 'silos'?); it takes adjacency, apart, arms,"),
        ("[plan]\nsilos = 3", "does not know 'plan'"),
        ('silos = "three"', "silos must be of type int, got 'three'"),
        ("silos = 3.5", "silos must be of type int, got 3.5"),
        ("epsilon = true", "epsilon must be of type float, got True"),
        ('protocols = "ldp"', "protocols must be a list of names, got 'ldp'"),
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


def test_late_and_missing_rewards(fedbandit: Command) -> None:
    plain, late = (
        fedbandit("simulate", *SMALL, "--protocols", "silo", *options, "--json").json["curves"][0]["regret"]["mean"]
        for options in ([], ["--delay", "8", "--missing", "0.3"])
    )
    assert plain != late
    refused = fedbandit("simulate", *SMALL, "--protocols", "ldp-eager", "--delay", "8")
    assert_refused(refused, "delays must be left out for 'ldp-eager': its silos act on every user at once")


def test_help_shows_the_defaults_that_there_are() -> None:
    """They are those of `Experiment`, which help does not load."""
    shown = {
        option.name: vars(option).get("show_default") for option in loaded("simulate").params if option.name != "file"
    }
    for field in fields(Experiment):
        if field.default not in (None, False):
            given = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
            assert shown[field.name] == given, field.name
