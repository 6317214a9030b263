"""The examples that take seconds run as they stand, and say what they set out to show."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TUTORIAL = (EXAMPLES.parent / "docs" / "tutorials" / "researcher.md").read_text()
PAGE = (EXAMPLES.parent / "docs" / "examples.md").read_text()


def run(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name / f"{name}.py"), run_name="__main__")


def test_three_newspapers_learn_what_draws_whom() -> None:
    found = run("news")
    assert found["last"] > found["first"] + 0.05


def test_shops_with_a_thousand_products_learn_more_together() -> None:
    found = run("shop")
    assert found["together"] < found["apart"]
    assert found["decision"].action in found["in_stock"]


@pytest.mark.parametrize("name", ["own_mechanism", "own_trust"])
def test_a_protocol_of_ones_own_holds(name: str) -> None:
    found = run(name)
    assert found["report"].verdict == "holds"
    assert found["report"].epsilon_lower > 0.5


def test_a_larger_epsilon_costs_less() -> None:
    found = run("frontier")
    regret = [found["result"].regret(f"secure-sum {epsilon:g}").mean for epsilon in found["EPSILONS"]]
    assert regret == sorted(regret, reverse=True)
    assert 8.0 in found["pays"]


@pytest.mark.parametrize("file", ["own_mechanism/banded.py", "own_trust/summing.py"])
def test_the_tutorial_shows_the_file_as_it_is(file: str) -> None:
    name = file.rpartition("/")[2]
    (shown,) = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    assert shown == (EXAMPLES / file).read_text()


def test_every_example_is_listed() -> None:
    listed = set(re.findall(r"`python examples/(\w+)/\w+\.py`", PAGE))
    assert listed == {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()}
