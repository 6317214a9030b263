"""A protocol of one's own is a plain file: its plan is played, its trust model and mechanism are known while it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.comparison.own_file import plugged_in
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.protocol import trust as trusts
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
MECHANISM, TRUST = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
ASKED = Plan(3, 20, 2, Privacy(1.0, 1e-5), trust="none")


def written(folder: Path, code: str, name: str = "mine") -> Path:
    file = folder / f"{name}.py"
    file.write_text(code)
    return file


def test_a_plan_is_enough(tmp_path: Path) -> None:
    code = "def plan(asked):\n    return asked.changed(trust='silo', mechanism='tree')\n"
    with plugged_in(written(tmp_path, code)) as planned:
        assert planned(ASKED) == ASKED.changed(trust="silo", mechanism="tree")


def test_an_agent_that_meets_all_users_one_by_one_is_welcome(tmp_path: Path) -> None:
    code = "def plan(asked):\n    return asked.changed(silos=1, rounds=asked.silos * asked.rounds)\n"
    with plugged_in(written(tmp_path, code)) as planned:
        assert planned(ASKED).rounds == 60


def test_a_trust_model_of_its_own_is_known_while_the_file_is_plugged_in(tmp_path: Path) -> None:
    code = f"{TRUST}\n\ndef plan(asked):\n    return asked.changed(trust='summing-mixer')\n"
    with plugged_in(written(tmp_path, code)) as planned:
        made = planned(ASKED)
        assert made.guarantee.epsilon == 1.0
        assert "The mixer, the analyzer and all other silos may collude." in made.trusting.who
        assert simulate(synthetic(2, 5), {"mine": made}, runs=1).regret("mine").mean > 0
    assert "summing-mixer" not in trusts.names()


def test_a_mechanism_of_its_own_is_called_as_the_file_is(tmp_path: Path) -> None:
    code = f"{MECHANISM}\n\ndef plan(asked):\n    return asked.changed(trust='silo', mechanism='mine')\n"
    with plugged_in(written(tmp_path, code)) as planned:
        assert planned(ASKED).encoder.touches == 16
    assert "mine" not in mechanisms.names()
    with pytest.raises(ArgumentError, match="mechanism must be one of"):
        ASKED.changed(trust="silo", mechanism="mine")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("x = 1\n", "must define a function plan"),
        ("plan = 1\n", "must define a function plan"),
        ("1 / 0\n", "cannot be run: .*ZeroDivisionError"),
        ("import nowhere\n", "cannot be run: .*ModuleNotFoundError"),
        ("TRUST = 3\ndef plan(asked): return asked\n", "must set TRUST to a Trust, got int"),
        (
            "from fedbandit.protocol.trusts.silo import TRUST\ndef plan(asked): return asked\n",
            "must give its TRUST a new name; there already is a 'silo'",
        ),
    ],
)
def test_a_file_that_is_no_protocol_is_refused(tmp_path: Path, code: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=f"^protocol {complaint}"), plugged_in(written(tmp_path, code)):
        pass


def test_a_mechanism_must_not_take_anothers_name(tmp_path: Path) -> None:
    code = "def encoder(size): ...\ndef plan(asked): return asked\n"
    with (
        pytest.raises(ArgumentError, match="there already is a 'tree'"),
        plugged_in(written(tmp_path, code, "tree")),
    ):
        pass


def test_a_plan_that_fails_is_said_in_one_line_and_one_that_no_theorem_covers_as_it_is(tmp_path: Path) -> None:
    for code, complaint in (
        ("raise RuntimeError('no')", r"^protocol cannot be run: .*mine\.py: RuntimeError: no$"),
        ("return asked.changed(silos=-1)", r"^silos must be"),
    ):
        file = written(tmp_path, f"def plan(asked):\n    {code}\n")
        with plugged_in(file) as planned, pytest.raises(ArgumentError, match=complaint):
            planned(ASKED)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must be a file that there is, got .*nowhere\.py"):
        plugged_in(tmp_path / "nowhere.py").__enter__()


@pytest.mark.parametrize("name", ["my-own.py", "mine.txt"])
def test_what_is_no_python_file_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("def plan(asked): return asked\n")
    with pytest.raises(ArgumentError, match="must be a Python file whose name is an identifier"), plugged_in(file):
        pass


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ("None", "must return a Plan from plan"),
        ("asked.changed(silos=4)", "must return a plan of 3 silos and 20 rounds, or of 1 and 60"),
        ("asked.changed(dim=3)", "and dimension 2, got 3, 20 and 3"),
        ("asked.changed(bits=19)", "must keep the grid of 20 bits"),
    ],
)
def test_a_plan_for_somebody_else_is_refused(tmp_path: Path, returned: str, complaint: str) -> None:
    with (
        plugged_in(written(tmp_path, f"def plan(asked):\n    return {returned}\n")) as planned,
        pytest.raises(ArgumentError, match=complaint),
    ):
        planned(ASKED)
