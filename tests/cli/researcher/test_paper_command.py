"""`fedbandit paper`: what it prints and writes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedbandit.paper.figures import PANELS
from tests.cli.harness import Command, assert_refused


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, panel in PANELS.items():
        monkeypatch.setitem(PANELS, name, replace(panel, quick_rounds=50, silos=6))


def test_list_names_every_panel(fedbandit: Command) -> None:
    assert [panel["name"] for panel in fedbandit("paper", "list", "--json").json] == list(PANELS)
    text = fedbandit("paper", "list").out
    assert all(name in text for name in PANELS)


def test_all_without_data_draws_the_synthetic_panels_and_says_what_was_skipped(
    fedbandit: Command, tmp_path: Path
) -> None:
    arguments = ("paper", "run", "all", "--quick", "--runs", "2", "--out", tmp_path / "out")
    done = fedbandit(*arguments, "--json")
    assert done.code == 0, done
    assert [panel["name"] for panel in done.json] == ["fig1a", "fig1b", "figA-a", "figA-b"]
    for name in ("fig1c", "figA-c", "figA-d", "warfarin"):
        assert f"skipped {name}: it needs --" in done.err
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"fig1a.svg", "figA-b.svg", "fig1b.json", "README.md"} <= written
    assert fedbandit(*arguments).out.count("as_simulated") >= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "fig2"], "panel must be one of fig1a, fig1b"),
        (["run", "fig1c"], "panel fig1c needs --data PATH"),
        (["run", "warfarin"], "panel warfarin needs --warfarin PATH"),
        (["run", "fig1a", "--format", "gif"], "format must be one of svg, png, pdf"),
        (["run", "fig1c", "--data", "/no/such/file"], "/no/such/file"),
    ],
)
def test_bad_input_is_named(arguments: list[str], message: str, fedbandit: Command, tmp_path: Path) -> None:
    assert_refused(fedbandit("paper", *arguments, "--out", tmp_path), message)
