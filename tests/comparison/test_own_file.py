"""A protocol of one's own is a plain file: its plan is played, its trust model and mechanism are known while it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import Prior
from fedbandit.comparison.contest import Standing, contest
from fedbandit.comparison.entrants import yours
from fedbandit.comparison.instances import Instance
from fedbandit.comparison.own_file import plugged_in
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.protocol import trust as trusts
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
MECHANISM, TRUST = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
PRIOR = "Prior((9.0,) * 5, (1.0,) * 3, 50.0)"
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
        ("def plan(): ...\n", r"must define plan\(asked\), a function of one argument"),
        ("def plan(asked, more): ...\n", r"must define plan\(asked\), a function of one argument"),
        ("x = 1\n1 / 0\n", r"cannot be run: .*mine\.py, line 2: ZeroDivisionError"),
        ("import nowhere\n", r"cannot be run: .*mine\.py, line 1: ModuleNotFoundError"),
        ("def plan(asked):\n    return (asked\n", r"cannot be run: .*mine\.py, line 2: SyntaxError: '\(' was never"),
        ("import sys\nsys.exit(0)\n", r"cannot be run: .*mine\.py, line 2: SystemExit: 0"),
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
        ("raise RuntimeError('no')", r"^protocol cannot be run: .*mine\.py, line 2: RuntimeError: no$"),
        ("return asked.changed(silos=-1)", r"^silos must be"),
    ):
        file = written(tmp_path, f"def plan(asked):\n    {code}\n")
        with pytest.raises(ArgumentError, match=complaint), plugged_in(file) as planned:
            planned(ASKED)


def test_a_protocol_that_fails_while_it_is_played_is_said_in_one_line_and_what_is_not_its_fault_is_not(
    tmp_path: Path,
) -> None:
    mixes = "        return (held[0].sum(axis=SILOS, keepdims=True),)"
    assert mixes in TRUST
    third = "        SYNCS.append(1)\n        if len(SYNCS) == 3:\n            raise RuntimeError('the third sync')\n"
    code = f"SYNCS = []\n{TRUST.replace(mixes, third + mixes)}\n\ndef plan(asked):\n    "
    code = "from __future__ import annotations\n" + code.replace("from __future__ import annotations\n", "")
    file = written(tmp_path, code + "return asked.changed(trust='summing-mixer')\n")
    line = 1 + file.read_text().splitlines().index("            raise RuntimeError('the third sync')")
    where = rf"^protocol cannot be run: .*mine\.py, line {line}: RuntimeError: the third sync$"
    with pytest.raises(ArgumentError, match=where), plugged_in(file) as planned:
        simulate(synthetic(2, 5), {"mine": planned(ASKED)}, runs=1)
    with pytest.raises(ZeroDivisionError), plugged_in(file):
        1 / 0  # noqa: B018


def test_a_protocol_without_noise_that_claims_its_budget_is_caught(tmp_path: Path) -> None:
    """The plan promises (1, 1e-5), as the honest one does, and its silos add a hundredth of the noise."""
    made = "SummingMixer(request.encoder, scales,"
    assert made in TRUST
    cheat = TRUST.replace(made, "SummingMixer(request.encoder, Scales(*(value / 100 for value in scales)),")
    verdicts = []
    for code in (TRUST, cheat):
        file = written(tmp_path, f"{code}\n\ndef plan(asked):\n    return asked.changed(trust='summing-mixer')\n")
        with plugged_in(file) as planned:
            small = Instance("small", synthetic(2, 5), 3, 20)
            (found,) = contest([yours(planned)], [small], Privacy(1.0, 1e-5), runs=1, seed=0, trials=300)
            verdicts.append((found.promise, found.verdict, found.private))
    assert verdicts == [("(1, 1e-05)", "holds", True), ("(1, 1e-05)", "broken", False)]


PARTS = '    parts = (Part("mixer"),)\n'
PLAYED = Instance("small", synthetic(2, 5), 3, 20)


def with_method(folder: Path, method: str) -> Path:
    """The trust model of CONTRIBUTING, with one method more or another one."""
    assert PARTS in TRUST
    future = "from __future__ import annotations\n"
    code = future + "import numpy as np\n" + TRUST.replace(future, "").replace(PARTS, PARTS + method)
    return written(folder, f"{code}\n\ndef plan(asked):\n    return asked.changed(trust='summing-mixer')\n")


def stood(file: Path, trials: int = 100) -> Standing:
    with plugged_in(file) as planned:
        (found,) = contest([yours(planned)], [PLAYED], Privacy(1.0, 1e-5), runs=2, seed=0, trials=trials)
    return found


@pytest.mark.parametrize(
    "method",
    [
        "    def pooled(self):\n        from dataclasses import replace\n"
        "        return replace(self, silos=1, scales=self.scales.times(0.01))\n",
        "    def pooled(self):\n        from dataclasses import replace\n        return replace(self, silos=1)\n",
    ],
    ids=["hardly any noise", "the noise of one silo"],
)
def test_a_wrong_shortcut_does_not_lower_the_regret_of_a_trust_model_of_its_own(tmp_path: Path, method: str) -> None:
    """What is played is what is audited: every silo draws its own noise."""
    honest, wrong = stood(with_method(tmp_path, "")), stood(with_method(tmp_path, method))
    assert wrong.regret == honest.regret
    asked = Plan(3, 20, 2, Privacy(1.0, 1e-5))
    with plugged_in(with_method(tmp_path, method)) as planned:
        short, long = (
            simulate(synthetic(2, 5), {"yours": planned(asked)}, 2, 0, pooled=way).final("yours")
            for way in (True, False)
        )
    assert (short != long).all()  # the shortcut is wrong, and would show


def test_silos_that_add_the_same_noise_are_caught(tmp_path: Path) -> None:
    """Each silo's noise is as it should be, and another silo of the same federation knows it."""
    same = """    def draw(self, noise, lead):
        return np.repeat(super().draw(noise, (*lead[:-1], 1)), lead[-1], axis=-2)
"""
    assert [stood(with_method(tmp_path, method)).verdict for method in ("", same)] == ["holds", "broken"]


@pytest.mark.parametrize(
    "draw",
    [
        "np.rint(np.random.default_rng(7).standard_normal((*lead, self.width)) * self.drawn_scales).astype(int)",
        "super().draw(noise, lead) * (np.arange(self.width) >= self.dim)",
        "super().draw(noise, lead) * (np.arange(self.width) < self.dim)",
    ],
    ids=["seeded", "none on the bias", "none on the covariance"],
)
def test_noise_that_is_seeded_or_missing_in_one_stream_is_caught(tmp_path: Path, draw: str) -> None:
    found = stood(with_method(tmp_path, f"    def draw(self, noise, lead):\n        return {draw}\n"))
    assert (found.promise, found.verdict, found.private) == ("(1, 1e-05)", "broken", False)


def test_noise_that_is_used_twice_is_caught(tmp_path: Path) -> None:
    """Every second release has the noise of the one before, with the other sign: together they show the data."""
    twice = """    def release(self, state, batch, noise):
        after, encoded = self.encoder.step(state, batch)
        if state.done % 2 == 0:
            object.__setattr__(self, "kept", self.draw(noise, batch.shape[:-1]))
        return after, (encoded + (self.kept if state.done % 2 == 0 else -self.kept),)
"""
    assert stood(with_method(tmp_path, twice)).verdict == "broken"


def test_numbers_that_a_trust_model_does_not_declare_are_refused(tmp_path: Path) -> None:
    """No adversary looks at them. Padding is zeros."""
    more = """    def release(self, state, batch, noise):
        after, (message,) = super().release(state, batch, noise)
        return after, (message, {})
"""
    with pytest.raises(ArgumentError, match=r"^trust must declare all that its silos send, got numbers in array 1"):
        stood(with_method(tmp_path, more.format("batch[..., :1]")))
    assert stood(with_method(tmp_path, more.format("0 * batch[..., :1]"))).verdict == "holds"


def test_a_file_that_answers_differently_each_time_is_audited_as_it_is_played(tmp_path: Path) -> None:
    code = (
        "N = []\ndef plan(asked):\n    N.append(1)\n    return asked.changed(trust='silo' if len(N) > 1 else 'none')\n"
    )
    found = stood(written(tmp_path, code))
    assert (found.trusts, found.promise, found.verdict) == ("all", "none", "broken")


def test_the_name_of_a_built_in_protocol_is_as_good_as_any(tmp_path: Path) -> None:
    code = "def plan(asked):\n    return asked.changed(trust='silo')\n"
    with plugged_in(written(tmp_path, code, "silo")) as planned:
        assert planned(ASKED).trust == "silo"


@pytest.mark.parametrize("name", ["nowhere.py", "my-own.py", "mine.txt"])
def test_what_is_no_python_file_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name != "nowhere.py":
        file.write_text("def plan(asked): return asked\n")
    complaint = "there is no file" if name == "nowhere.py" else "whose name is an identifier"
    with pytest.raises(ArgumentError, match=f"protocol must be a Python file.* {complaint}"), plugged_in(file):
        pass


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ("None", "must return a Plan from plan"),
        ("asked.changed(silos=4)", "must return a plan of 3 silos and 20 rounds, or of 1 and 60"),
        ("asked.changed(dim=3)", "and dimension 2, got 3, 20 and 3"),
        ("asked.changed(bits=19)", "must keep the grid of 20 bits"),
        (
            f"asked.changed(trust='silo', prior=__import__('{Prior.__module__}', fromlist='x').{PRIOR})",
            "must begin with nothing known, as all entrants do",
        ),
        ("asked.changed(privacy=type(asked.privacy)(50.0, 1e-5))", r"must keep the budget .* \(1, 1e-05\)"),
        ("asked.changed(privacy=type(asked.privacy)(1.0, 1e-5, 'add-remove'))", "with its adjacency"),
    ],
)
def test_a_plan_for_somebody_else_is_refused(tmp_path: Path, returned: str, complaint: str) -> None:
    with (
        plugged_in(written(tmp_path, f"def plan(asked):\n    return {returned}\n")) as planned,
        pytest.raises(ArgumentError, match=complaint),
    ):
        planned(ASKED)
