"""What docs/*.md show is what the commands do: their files exist, their commands run, their output is printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedbandit.cli.main import app
from fedbandit.cli.researcher.experiment import Experiment
from fedbandit.federation.setup.home import Home
from fedbandit.protocol import trust as trusts

DOCS = Path(__file__).resolve().parents[1] / "docs"
SRC = DOCS.parent / "src" / "fedbandit"
FEDERATION, PLANNING, FILES = ((DOCS / name).read_text() for name in ("federation.md", "planning.md", "files.md"))
README = (DOCS.parent / "README.md").read_text()


def run(command: str) -> str:
    """What `fedbandit ...` prints, both streams."""
    result = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
    assert result.exit_code == 0, (command, result.exception)
    return result.output


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text()):
        assert (DOCS.parent / path).exists() or list(SRC.rglob(path)), path


@pytest.mark.parametrize(
    "name", ["federation.md", "frontier.md", "README.md", "files.md", "performance.md", "glossary.md"]
)
def test_pages_speak_of_syncs_and_of_the_parties_there_are(name: str) -> None:
    text = " ".join((DOCS / name).read_text().split())
    assert "synchronisations" not in text
    others = ("the same server", "the server recycles")  # that of an application, and PostgreSQL
    for words in others:
        text = text.replace(words, "")
    assert not re.search(r"\b(trusted|the) server\b", text)


def test_the_consortium_of_the_page_is_told_to_stay_alone_at_a_small_epsilon() -> None:
    (command,) = re.findall(r"```console\n\$ (fedbandit plan --best .*?)\n", PLANNING)
    assert run(command.replace("--epsilon 1 ", "--epsilon 0.05 ")).startswith("Stay alone: ")


def test_three_commands_lead_from_facts_to_a_plan_a_curve_and_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As README and page show them, but with a shorter year and fewer trials."""
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"```sh\n(fedbandit plan --best .*?)```", README.replace("\\\n", " "), flags=re.DOTALL)
    (again,) = re.findall(r"```sh\n(fedbandit plan --best .*?)```", PLANNING.replace("\\\n", " "), flags=re.DOTALL)
    commands = [line.partition("#")[0].split() for line in shown.splitlines()]
    assert commands == [line.split() for line in again.splitlines()]
    planned, simulated, certified = (" ".join(command) for command in commands)
    assert run(planned.replace("--days 365", "--days 120")).startswith("Federate, with secure-sum")
    assert "alone" in run(f"{simulated} --runs 1")
    assert Path("clinic/regret.svg").exists()
    assert "(1, 1e-06)" in run(f"{certified} --trials 400")


def test_three_organisations_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 1 to 4, each in the directory of whoever runs it, with only those files sent that the page says to send."""
    steps = re.findall(r"\*\*(\d)\. .*?```sh\n(.*?)```", FEDERATION, flags=re.DOTALL)
    commands = {int(number): text.replace("\\\n", " ").splitlines() for number, text in steps}
    places = {name: tmp_path / name for name in ("foundation", "A", "B")}
    for place in places.values():
        place.mkdir()
    monkeypatch.chdir(places["foundation"])
    assert "differentially private" in run(*commands[1])
    for line in commands[2]:
        command, _, where = line.partition("#")
        monkeypatch.chdir(places["A" if "at A" in where else "B"])
        shutil.copy(places["foundation"] / "founder" / "federation.json", "federation.json")
        home = command.split()[3]
        run(command)
        shutil.copy(Path(home) / f"{home}.card.json", places["foundation"])
    assert "`hospital-a/hospital-a.card.json`" in FEDERATION
    monkeypatch.chdir(places["foundation"])
    assert "complete; send" in run(*commands[3])
    monkeypatch.chdir(places["A"])
    shutil.copy(places["foundation"] / "founder" / "federation.json", "federation.json")
    run(*commands[4])
    assert Home.load(places["A"] / "hospital-a").party().agreement.silos == ("hospital-a", "hospital-b")


LIVE = {
    "silo": "",
    "secure-sum": "",
    "central": "",
    "vector-sum": "--mechanism tree --calibration paper --schedule every:5 --visits public",
    "shuffle": "--mechanism tree --calibration paper --silos 2000 --epsilon 0.001 --delta 1e-4 --rounds 20",
}


def test_the_table_of_trust_models_is_complete_and_each_can_be_founded(tmp_path: Path) -> None:
    table = FEDERATION.split("## Trust models")[1]
    listed = re.findall(r"^\| `([a-z-]+)` \|", table, flags=re.MULTILINE)
    assert sorted(listed) == sorted(name for name in trusts.names() if trusts.trust(name).live)
    for name, how in LIVE.items():
        size = "" if "--silos" in how else "--silos 3 --rounds 20 --dim 2"
        run(f"fedbandit federation init {tmp_path / name} --name trial --trust {name} {size} {how}")
    free = tmp_path / "plan.json"
    free.write_text(json.dumps({"silos": 3, "rounds": 20, "dim": 2, "privacy": None, "trust": "none"}))
    run(f"fedbandit federation init {tmp_path / 'none'} --name trial --plan {free}")


def test_the_table_of_a_comparison_is_the_commands_defaults(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", FILES, flags=re.DOTALL)
    shown = tomllib.loads(text)
    defaults = asdict(Experiment())
    assert defaults.pop("batch") is defaults.pop("jump_at") is None
    assert {**shown, "protocols": tuple(shown["protocols"])} == defaults
    file = tmp_path / "comparison.toml"
    file.write_text(text)
    small = "--protocols silo --silos 2 --rounds 20 --dim 3 --arms 4 --runs 1 --json"
    assert json.loads(CliRunner().invoke(app, ["simulate", str(file), *small.split()]).stdout)["curves"]
