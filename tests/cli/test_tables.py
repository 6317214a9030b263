"""Tables fit 80 columns, `--wide` shows all of them, and neither breaks a name."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import fedbandit as fb
from fedbandit.cli import output
from fedbandit.planner.studies import shuffle_map
from tests.cli.harness import SMALL, Command, assert_refused
from tests.docs.places import decisions_logged
from tests.planner.studies.written_map import written_map

LINES = "┏┃┡┌│└"
HASHES_AND_LINES = r"(?=\d*[a-f])[0-9a-f]+|[━─┏┡┌└┳╇┬┴┓┩┐┘]*"
SMALLER = "--silos 3 --rounds 40 --dim 3 --arms 4 --runs 1"
LONG = "a rather long name of a field of the record"
SCHEMA = f"""
actions = ["low", "high"]

[context.age]
type = "number"
low = 18
high = 100

[context."{LONG}"]
type = "number"
low = 0
high = 1
missing = true
"""


def widths(printed: str) -> list[int]:
    return [len(line) for line in printed.splitlines() if line[:1] in LINES and line]


def words(printed: str) -> set[str]:
    """Without lines, and without hashes, which are longer than a screen leaves room for."""
    return {word for word in re.split(r"[\s│┃]+", printed) if not re.fullmatch(HASHES_AND_LINES, word)}


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What commands look at: parties, a ledger, a table of the past and its schema, a log of decisions."""
    place = tmp_path_factory.mktemp("things")
    plan = fb.Plan(silos=2, rounds=30, dim=2, privacy=fb.Privacy(1.0, 1e-5), schedule=fb.clock(86_400))
    with fb.Federation.local(plan, ["hospital-of-the-holy-spirit", "south"], folder=place / "trial") as federation:
        federation.tick(2)
    rows = [f"{n % 4},{18 + n % 80},0.5,{'high' if n % 3 else 'low'},{n % 2}\n" for n in range(200)]
    (place / "visits.csv").write_text(f"clinic,age,{LONG},dose,better\n" + "".join(rows))
    (place / "schema.toml").write_text(SCHEMA)
    decisions_logged(place / "logged")
    (place / "judged.txt").write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:0.25 2:2\n2 qid:2 1:1 2:0\n")
    return place


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
        "attack lying-silo --trials 2",
        "paper list",
        "audit secure-sum --trials 20 --workers 1",
        f"frontier {SMALLER} --budgets 1:0.1 --curves silo,secure-sum",
        f"frontier {SMALLER} --budgets 1:0.1 --ablation",
        "data check {place}/judged.txt",
        "status {place}/trial/hospital-of-the-holy-spirit",
        "status {place}/trial/mixer",
        "status {place}/trial/analyzer",
        "ledger {place}/trial/south/silo.db",
        "evaluate {place}/log --policy uniform --policy always:1 --policy model",
        "replay {place}/visits.csv --schema {place}/schema.toml --silo-column clinic --epsilon 4 --delta 1e-5 "
        "--action dose --reward better --propensity 0.5 --runs 1 --compare silo --always low",
        "plan --schema {place}/schema.toml --silos 12 --rounds 365",
        f"simulate --protocols silo,secure-sum,sdp-vector-sum {' '.join(SMALL)}",
    ],
)
def test_it_fits(arguments: str, fedbandit: Command, things: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(things)  # what is printed has no long names of folders in it
    if arguments.startswith("evaluate"):
        assert fedbandit("silo", "log", "logged", "--out", "log").code == 0
    arguments = arguments.format(place=".")
    said = fedbandit(*arguments.split())
    assert said.code == 0, said.err
    assert widths(said.out)
    assert max(widths(said.out)) <= 80
    assert words(said.out) <= words(fedbandit(*arguments.split(), "--wide").out), "no word or number is broken"


def test_the_widest_columns_give_way_and_names_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    """For tables of commands that take too long to be run here: bench, demo, compare, audit --all."""
    output.set_wide(False)
    name, sentence = "durable reward, median / p99", "a sentence of words that goes on " * 6
    output.print_table("a title", ["", "what", "x"], [[name, sentence, "1,234,567"], ["short", "-", "2"]])
    printed = capsys.readouterr().out
    assert max(widths(printed)) == 80
    assert name in printed
    assert words(printed) <= words(f"a title what x {name} {sentence} 1,234,567 short - 2")
    output.print_table("", ["", "hash"], [["plan", "3b" * 60]])
    assert max(widths(capsys.readouterr().out)) <= 80, "a word that is too long is broken all the same"


def test_a_title_breaks_at_the_width_of_the_screen_and_not_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    output.set_wide(False)
    title = "a title that is longer than the table below it"
    output.print_table(title, ["a", "b"], [["x", "1"]])
    assert capsys.readouterr().out.splitlines()[0] == title
    output.print_table(f"{title} {title}", ["a", "b"], [["x", "1"]])
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[:2]).split() == [*title.split(), *title.split()]
    assert len(lines[0]) <= 80


def test_the_map_of_shuffling_fits(fedbandit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has no lines; its numbers are those of the gallery, which take a while to compute."""
    known = written_map(Path(__file__).parents[2] / "docs" / "gallery")
    monkeypatch.setattr(shuffle_map, "measured", lambda: known)
    monkeypatch.setattr(shuffle_map, "draw", lambda found, path: None)
    narrow, wide = (fedbandit("paper", "shuffle", "--out", tmp_path, *more).out for more in ((), ("--wide",)))
    assert max(map(len, narrow.splitlines())) <= 80
    assert "7e+08" in narrow
    assert words(narrow) <= words(wide)


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


def test_sentences_fit_a_screen_and_go_elsewhere_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal would break them in the middle of a word."""
    promise = str(fb.Plan(silos=3, rounds=30, dim=2, privacy=fb.Privacy(1.0, 1e-5)).guarantee)
    said = {}
    for screen in (True, False):
        console = Console(file=io.StringIO(), force_terminal=screen, width=80, highlight=False, markup=False)
        monkeypatch.setattr(output, "stdout", console)
        output.say(promise)
        said[screen] = console.file.getvalue()  # type: ignore[attr-defined]
    assert said[False] == f"{promise}\n"
    assert said[True].split() == promise.split(), "every word whole"
    assert max(len(line) for line in said[True].splitlines()) <= 80
    assert max(len(line) for line in said[False].splitlines()) > 80
