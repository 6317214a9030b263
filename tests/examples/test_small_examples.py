"""The examples that take seconds run as they stand, and say what they set out to show."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell
from tools import notebooks

from tests.examples.playing import VARYING, committed, masked, played

EXAMPLES = notebooks.EXAMPLES
TUTORIAL = (EXAMPLES.parent / "docs" / "tutorials" / "researcher.md").read_text()
PAGE = (EXAMPLES.parent / "docs" / "examples.md").read_text()
HOLDS = 'assert report.verdict == "holds"\nassert report.epsilon_lower > 0.5'
VARIES = {"clinic": 3 + 12 * 4, "news": 2, "shop": 1}  # numbers: by week and by hospital; clicks; a time
CHECKS = {
    "news": "assert last > first + 0.05",
    "shop": "assert together < apart\nassert decision.action in in_stock",
    "own_mechanism": HOLDS,
    "own_trust": HOLDS,
    "frontier": """
regret = [result.regret(f"secure-sum {epsilon:g}").mean for epsilon in EPSILONS]
assert regret == sorted(regret, reverse=True)
assert 8.0 in pays
""",
}


@pytest.mark.parametrize("name", CHECKS)
def test_an_example_shows_what_it_set_out_to(name: str) -> None:
    played(name, CHECKS[name])


def test_every_example_is_played() -> None:
    assert {*CHECKS, "clinic"} == set(notebooks.NAMES) == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}


def test_an_example_runs_as_a_file_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that notebook and file share, only the way to the file beside them differs."""
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(notebooks.path("own_trust", ".py")), run_name="__main__")
    assert found["report"].verdict == "holds"


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_notebook_is_what_its_source_says(name: str) -> None:
    committed, made = nbformat.read(notebooks.path(name), as_version=4), notebooks.from_source(name)
    again = f"run: python tools/notebooks.py {name}"
    assert _bare(committed) == _bare(made), again
    for cell in committed.cells:
        for output in cell.get("outputs", ()):
            assert (output.output_type, output.name) == ("stream", "stdout"), "no warnings, no pictures of bars"
            assert not re.search(r"/(home|root|Users|work|tmp)/", output.text), "no paths of a machine"
    assert notebooks.path(name).stat().st_size < 30_000


def _bare(notebook: Any) -> Any:
    """A notebook without what its cells print."""
    bare = nbformat.from_dict(notebook)
    for cell in bare.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    return bare


def test_a_notebook_that_fails_is_noticed(tmp_path: Path) -> None:
    notebook = notebooks.from_source("frontier")
    notebook.cells = [new_code_cell("print('so far')"), new_code_cell("assert 1 == 2, 'and no further'")]
    with pytest.raises(CellExecutionError, match="and no further"):
        notebooks.executed(notebook, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_every_stale_digit_of_a_notebook_is_noticed(name: str) -> None:
    """Change one digit in what the committed notebook shows: it is no longer what a run prints, unless it varies."""
    shown = committed(name)
    hidden = masked(name, shown)
    assert hidden.count("#") == VARIES.get(name, 0)
    places = [digit.start() for digit in re.finditer(r"\d", shown)]
    others = [f"{shown[:at]}{(int(shown[at]) + 1) % 10}{shown[at + 1 :]}" for at in places]
    noticed = [other for other in others if masked(name, other) != hidden]
    assert len(noticed) == len(re.findall(r"\d", hidden)) > 0


def test_other_words_are_noticed_even_around_numbers_that_vary() -> None:
    line = "with its durable reward took 3.1 ms here"
    assert masked("shop", line) == masked("shop", line.replace("3.1", "12"))
    assert masked("shop", line) != masked("shop", line.replace("durable", "lasting"))
    assert set(VARYING) == set(VARIES)
    with pytest.raises(AssertionError, match="prints nothing like"):
        masked("shop", "nothing")


@pytest.mark.parametrize("file", ["own_mechanism/banded.py", "own_trust/summing.py"])
def test_the_tutorial_shows_the_file_as_it_is(file: str) -> None:
    name = file.rpartition("/")[2]
    (shown,) = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    assert shown == (EXAMPLES / file).read_text()


def test_every_example_is_listed() -> None:
    for link in (r"examples/(\w+)\.md", r"\.\./examples/(\w+)/\1\.py", r"\.\./examples/(\w+)/\1\.ipynb"):
        assert sorted(re.findall(rf"\({link}\)", PAGE)) == notebooks.NAMES
