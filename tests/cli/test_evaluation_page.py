"""docs/evaluation.md: its commands run, and what it says of the warfarin data is so."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.decision_log import DecisionLog
from tests.cli.harness import Command
from tests.federation.small import small_plan

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evaluation.md").read_text()
WARFARIN = ROOT.parent / "shared" / "data" / "warfarin" / "warfarin.csv.gz"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page."""
    for name, text in re.findall(r"```toml\n# (\w+\.toml)\n(.*?)```", PAGE, flags=re.DOTALL):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(word: str) -> list[list[str]]:
    return [command for command in COMMANDS if word in command]


def test_the_python_of_the_page_runs() -> None:
    for block in PYTHON:
        if "sys.argv" not in block:  # which is about a file: below
            exec(block, {})


def test_from_a_silo_to_a_picture(place: Path, fedbandit: Command) -> None:
    home = Home.create(place / "hospital-a", name="a", role="silo", log_days=90)
    plan = small_plan(policy={"name": "ucb", "floor": 0.5}, rounds=1000)
    with Silo.open(place / "silo.db", plan, log=DecisionLog(home.decision_log)) as silo:
        made = silo.decide_many(np.repeat(np.eye(2)[None], 300, axis=0))
        silo.reward_all([(one.id, float(one.action)) for one in made])
    (export,), (evaluate,) = commands("silo"), commands("evaluate")
    assert fedbandit(*export).code == 0
    assert fedbandit(*evaluate).code == 0
    assert (place / "worth.svg").exists()


def test_a_table_is_replayed(place: Path, fedbandit: Command) -> None:
    rng = np.random.default_rng(0)
    people = pl.DataFrame(
        {
            "hospital": rng.choice(["north", "south"], 400),
            "VKORC1 -1639 consensus": rng.choice(["A/A", "G/G"], 400),
            "Weight (kg)": rng.uniform(40, 120, 400),
            "Age": rng.choice(["60 - 69", "90+"], 400),
            "Race": rng.choice(["Asian", "White"], 400),
            "treatment": rng.choice(["low", "medium", "high"], 400),
            "better": rng.integers(0, 2, 400),
        }
    )
    people.write_csv(place / "table.csv")
    (general,) = (command for command in commands("replay") if "table.csv" in command)
    assert "observed outcomes" in fedbandit(*general, "--runs", "2").out


@pytest.mark.shared
@pytest.mark.skipif(not WARFARIN.exists(), reason="the warfarin CSV is not beside the clone")
def test_warfarin_as_the_page_says(place: Path, fedbandit: Command) -> None:
    """Every share within its interval there, and the order of who is ahead of whom."""
    (halves,) = (block for block in PYTHON if "report.csv" in block)
    with patch.object(sys, "argv", ["halves", str(WARFARIN)]):
        exec(halves, {})
    assert pl.read_csv(place / "choose.csv", infer_schema_length=0).height == 2851
    (command,) = (command for command in commands("replay") if "report.csv" in command)
    said = json.loads(fedbandit(*command, "--runs", "20", "--json").out)
    assert (said["people"], said["left_out"], said["silos"]) == (2748, 102, 100)
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) % \| ([\d.]+) to ([\d.]+) \|", PAGE, flags=re.MULTILINE)
    assert len(rows) == len(said["worth"]) == 5
    for (who, share, low, high), found in zip(rows, said["worth"].values(), strict=True):
        assert float(low) < float(share) < float(high)
        if "paper" not in who:  # whose few runs vary more than that
            assert float(low) < 100 * found["value"] < float(high), who
    assert said["excess"]["each silo alone"]["low"] > 0
    assert said["excess"]["ldp"]["low"] > 0
    assert said["excess"]["always medium"]["high"] < 0
    assert said["excess"]["best linear policy"]["high"] < 0
