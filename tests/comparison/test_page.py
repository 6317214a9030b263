"""docs/comparison.md shows what `fedbandit compare my_protocol.py` writes, with the file that is on the page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit.baselines import BASELINES
from fedbandit.cli.main import app
from fedbandit.comparison.contest import Standing
from fedbandit.comparison.entrants import ENTRANTS, YOURS
from fedbandit.comparison.instances import INSTANCES, NEEDS, Paths, instances
from fedbandit.comparison.own_file import plugged_in
from fedbandit.comparison.standings import as_markdown, draw_contest, markdown_row, syncs_row
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.result import Estimate
from fedbandit.simulator.tasks import Tabled

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
DATA = {"letor": SHARED / "mslr" / "mslr_sample.letor.txt.gz", "warfarin": SHARED / "warfarin" / "warfarin.csv.gz"}
PAGE = (ROOT / "docs" / "comparison.md").read_text()
FIGURE = ROOT / "docs" / "figures" / "comparison.svg"
FOUND: dict[str, Any] = json.loads(FIGURE.with_suffix(".json").read_text())
NAMES = [size["name"] for size in FOUND["instances"]]
TITLE = "(1, 1e-05), 3 runs, seed 0: regret per user, 1 is chance"
TALKING = ("fed-lin-ucb", "he", "dubey", "private-adaptive", "ldp", "silo")
QUICKLY = ("fed-lin-ucb", "chowdhury-zhou", "secure-sum practical")  # those that take a moment


def standing(one: dict[str, Any]) -> Standing:
    audit, regret = one["audit"], {name: Estimate(**found) for name, found in one["regret"].items()}
    about = (one["name"], one["trusts"], one["promise"], audit["verdict"], audit["epsilon_lower"])
    return Standing(*about, regret, one["syncs"], one["left_out"])


OUTCOMES = [standing(one) for one in FOUND["outcomes"]]


def tables(text: str) -> list[list[str]]:
    """The rows of every table, heads included."""
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)]


def cells(rows: list[str]) -> dict[tuple[str, str], str]:
    """What stands in a table, by the names of row and column."""
    head, _, *others = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {(row[0], column): cell for row in others for column, cell in zip(head, row, strict=True)}


WHO, REGRET, SYNCS = tables(PAGE)


def written_by(folder: Path, *options: str) -> str:
    """The tables that the command of the page writes."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    file = folder / "my_protocol.py"
    file.write_text(code)
    result = CliRunner().invoke(app, ["compare", str(file), "--out", str(folder), *options])
    assert result.exit_code == 0, result.exception
    return (folder / "comparison.md").read_text()


def test_the_page_has_the_tables_that_the_command_wrote() -> None:
    found = as_markdown(OUTCOMES, NAMES, TITLE)
    regret, syncs = tables(found)
    assert regret == REGRET
    assert [*syncs[:2], *(markdown_row(syncs_row(one, NAMES)) for one in OUTCOMES if one.name in TALKING)] == SYNCS
    mean, stderr = OUTCOMES[0].regret["shop"]
    drifted = replace(OUTCOMES[0], regret={**OUTCOMES[0].regret, "shop": Estimate(mean + 0.001, stderr)})
    assert tables(as_markdown([drifted, *OUTCOMES[1:]], NAMES, TITLE))[0] != REGRET


def test_the_picture_is_that_of_the_numbers(tmp_path: Path) -> None:
    draw_contest(OUTCOMES, NAMES, tmp_path / "again.svg", TITLE)
    assert (tmp_path / "again.svg").read_bytes() == FIGURE.read_bytes()


def test_who_wins_where_is_as_the_page_says() -> None:
    private = [one for one in OUTCOMES if one.private]
    proven = [one for one in private if not one.name.endswith(" practical") and one.name != YOURS]
    regret = {one.name: {at: found.mean for at, found in one.regret.items()} for one in OUTCOMES}
    for at in NAMES:
        first = sorted(private, key=lambda one: one.regret[at].mean)
        assert first[0].name in ("secure-sum practical", YOURS)
        assert min(proven, key=lambda one: one.regret[at].mean).name == "secure-sum"
    for at in ("letor", "warfarin"):
        assert regret["fed-lin-ucb"][at] > max(regret[name][at] for name in ("silo practical", "secure-sum practical"))
    near_chance = [at for at in NAMES if regret["shariff-sheffet"][at] > 0.9]
    assert near_chance == ["synthetic", "clinic", "shop", "warfarin"]
    for name in ("zheng", "local"):
        assert min(regret[name]["clinic"], regret[name]["shop"]) > 0.9
    assert regret["chowdhury-zhou"]["synthetic"] < 0.5
    assert min(regret["chowdhury-zhou"]["clinic"], regret["chowdhury-zhou"]["shop"]) > 0.9
    assert min(regret["sdp-vector-sum"][at] for at in ("synthetic", "clinic", "shop")) > 0.9
    assert all(0.7 < regret["sdp-vector-sum exact"][at] / regret["silo"][at] < 1.3 for at in NAMES)
    assert regret["dubey"]["synthetic"] < 1.1 * regret["fed-lin-ucb"]["synthetic"]
    broken = sorted(one.name for one in OUTCOMES if one.verdict == "broken")
    assert broken == ["azize-basu", "dubey", "fed-lin-ucb", "he"]
    (amplified,) = [one for one in OUTCOMES if one.name == "sdp-amplified"]
    assert list(amplified.left_out) == NAMES


def test_the_numbers_are_of_all_instances_and_entrants() -> None:
    assert FOUND["budget"] == {"epsilon": 1.0, "delta": 1e-5}
    assert (FOUND["runs"], FOUND["seed"]) == (3, 0)
    assert [one.name for one in OUTCOMES] == [YOURS, *(entrant.name for entrant in ENTRANTS)]
    assert list(INSTANCES) == NAMES
    sizes = {one["name"]: (one["silos"], one["rounds"], one["dim"]) for one in FOUND["instances"]}
    for made in instances(Paths()):
        assert sizes[made.name] == (made.silos, made.rounds, made.task.dim)
    for name in NEEDS:
        assert f"{name} (by path)" in REGRET[0]


def test_some_of_the_numbers_found_again_by_the_command(tmp_path: Path) -> None:
    """Without data: `yours` and a few others, on three instances; the other rows and columns take longer."""
    again = cells(tables(written_by(tmp_path, "--against", ",".join(QUICKLY), "--trials", "200"))[0])
    assert {row for row, _ in again} == {YOURS, *QUICKLY}
    printed = cells(REGRET)
    assert again == {place: printed[place] for place in again}


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/data is not there")
def test_some_of_the_numbers_on_data_found_again_by_the_command(tmp_path: Path) -> None:
    paths = [word for name, path in DATA.items() for word in (f"--{name}", str(path))]
    again = cells(tables(written_by(tmp_path, "--against", "secure-sum", "--trials", "50", *paths))[0])
    printed = cells(REGRET)
    assert again == {place: printed[place] for place in again}
    assert (YOURS, "letor (by path)") in again


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/data is not there")
def test_a_random_direction_is_better_than_a_random_action_on_letor() -> None:
    made = {one.name: one.task for one in instances(Paths(DATA["letor"]))}
    lost = {}
    for name in ("letor", "shop"):
        task = made[name]
        assert isinstance(task, Tabled)
        directions = np.random.default_rng(0).standard_normal((task.dim, 60))
        scores, means = task.table.features @ directions, np.asarray(task.table.means)
        regret, chance = [], []
        for start, end in pairwise(task.table.offsets):
            here = means[start:end]
            regret.append(here.max() - here[scores[start:end].argmax(axis=0)])
            chance.append(here.max() - here.mean())
        lost[name] = np.mean(regret, axis=0) / np.mean(chance)
    errors = {name: float(np.std(found)) / math.sqrt(60) for name, found in lost.items()}
    assert np.mean(lost["letor"]) < 1 - 4 * errors["letor"]
    assert abs(np.mean(lost["shop"]) - 1) < 4 * errors["shop"]


@pytest.mark.torture
def test_all_of_the_numbers_found_again_by_the_command(tmp_path: Path) -> None:
    """On data too, where they are there."""
    paths = [word for name, path in DATA.items() if path.exists() for word in (f"--{name}", str(path))]
    regret, syncs = tables(written_by(tmp_path, *paths))
    again, printed = cells(regret), cells(REGRET)
    assert {row for row, _ in again} == {row for row, _ in printed}
    assert again == {place: printed[place] for place in again}
    if paths:
        assert regret == REGRET
        assert [row for row in syncs if row in SYNCS] == SYNCS
        assert (tmp_path / FIGURE.name).read_bytes() == FIGURE.read_bytes()


def test_every_baseline_is_on_the_page() -> None:
    listed = re.findall(r"`([a-z-]+)`", " ".join(row.split("|")[1] for row in WHO))
    assert set(BASELINES) < set(listed)
    for name, known in BASELINES.items():
        (row,) = [row for row in WHO if row.startswith(f"| `{name}`")]
        year = re.search(r"\d{4}$", known.paper)
        assert year is not None
        assert year[0] in row


def test_the_file_on_the_page_is_a_protocol(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    file = tmp_path / "my_protocol.py"
    file.write_text(code)
    with plugged_in(file) as planned:
        made = planned(Plan(20, 250, 5, Privacy(1.0, 1e-5), trust="none"))
        assert made.guarantee.promised
        assert made.mechanism == "early"
        with pytest.raises(ArgumentError, match="first must be at most the horizon"):
            planned(Plan(20, 3, 5, Privacy(1.0, 1e-5), trust="none"))
