"""`fedbandit paper` and `fedbandit data`: what they print, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fedbandit.cli import data, paper
from fedbandit.paper.figures import PANELS

runner = CliRunner()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, panel in PANELS.items():
        monkeypatch.setitem(PANELS, name, replace(panel, quick_rounds=50, silos=6))


def test_list_names_every_panel():
    listed = json.loads(runner.invoke(paper.app, ["list", "--json"]).stdout)
    assert [panel["name"] for panel in listed] == list(PANELS)
    text = runner.invoke(paper.app, ["list"]).stdout
    assert all(name in text for name in PANELS)


def test_all_without_data_draws_the_synthetic_panels_and_says_what_was_skipped(tmp_path):
    arguments = ["run", "all", "--quick", "--runs", "2", "--out", str(tmp_path / "out"), "--json"]
    done = runner.invoke(paper.app, arguments)
    assert done.exit_code == 0, done.output
    assert [panel["name"] for panel in json.loads(done.stdout)] == ["fig1a", "fig1b", "figA-a", "figA-b"]
    for name in ("fig1c", "figA-c", "figA-d", "warfarin"):
        assert f"skipped {name}: it needs --" in done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"fig1a.svg", "figA-b.svg", "fig1b.json", "README.md"} <= written
    assert runner.invoke(paper.app, [*arguments[:-1]]).stdout.count("as_simulated") >= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "fig2"], "panel must be one of fig1a, fig1b"),
        (["run", "fig1c"], r"panel fig1c needs --data PATH"),
        (["run", "warfarin"], r"panel warfarin needs --warfarin PATH"),
        (["run", "fig1a", "--format", "gif"], "format must be one of svg, png, pdf"),
        (["run", "fig1c", "--data", "/no/such/file"], "/no/such/file"),
    ],
)
def test_bad_input_is_named(arguments, message, tmp_path):
    failed = runner.invoke(paper.app, [*arguments, "--out", str(tmp_path)])
    assert isinstance(failed.exception, (ValueError, OSError))
    with pytest.raises((ValueError, OSError), match=message):
        raise failed.exception


def test_check_describes_a_file_and_names_a_bad_line(tmp_path):
    good = tmp_path / "good.txt"
    good.write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:0.25 2:2\n2 qid:2 1:1 2:0\n")
    found = json.loads(runner.invoke(data.app, ["check", str(good), "--json"]).stdout)
    assert (found["queries"], found["documents"], found["features"]) == (2, 3, 2)
    assert "documents" in runner.invoke(data.app, ["check", str(good)]).stdout
    bad = tmp_path / "bad.txt"
    bad.write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:nan 2:2\n")
    with pytest.raises(ValueError, match=r"bad\.txt.*2"):
        raise runner.invoke(data.app, ["check", str(bad)]).exception
