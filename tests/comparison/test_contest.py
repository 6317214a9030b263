"""A comparison is what the simulator and the audit say, put side by side."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.audit.cases import AUDITED
from fedbandit.baselines import BASELINES, baseline
from fedbandit.comparison import contest as contesting
from fedbandit.comparison import instances as standard
from fedbandit.comparison.contest import Standing, contest
from fedbandit.comparison.entrants import ENTRANTS, Entrant, yours
from fedbandit.comparison.instances import INSTANCES, Instance, Paths
from fedbandit.comparison.own_file import FIELD
from fedbandit.comparison.standings import as_markdown, draw_contest
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.result import Estimate
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import Tabled, synthetic

BUDGET = Privacy(1.0, 1e-5)
SMALL = Instance("small", synthetic(3, 5), 4, 30)
KNOWN = {entrant.name: entrant for entrant in ENTRANTS}


def refused(asked: Plan) -> Plan:
    raise ArgumentError("epsilon", "must be smaller")


def test_everybody_takes_part_and_can_be_audited() -> None:
    assert set(BASELINES) < set(KNOWN)
    assert {"fed-lin-ucb", "isolated", "ldp", "silo", "secure-sum", "local", "dubey", "private-adaptive"} < set(KNOWN)
    for name, entrant in KNOWN.items():
        assert (entrant.cases is None) == (name == "isolated")
    assert {"shariff-sheffet exact", "zheng exact", "secure-sum practical", "silo practical"} < set(KNOWN)
    assert {"sdp-amplified", "sdp-vector-sum", "sdp-vector-sum exact"} < set(KNOWN)


def test_regret_is_the_simulators_per_user_and_in_units_of_chance() -> None:
    chosen = [KNOWN["secure-sum"], KNOWN["chowdhury-zhou"], KNOWN["isolated"]]
    outcomes = {one.name: one for one in contest(chosen, [SMALL], BUDGET, runs=2, seed=1, trials=50)}
    asked = Plan(4, 30, 3, BUDGET, trust="none")
    for name, plan in (
        ("secure-sum", plan_for("secure-sum", asked)),
        ("chowdhury-zhou", baseline("chowdhury-zhou", asked)),
    ):
        lost = simulate(SMALL.task, {name: plan}, 2, 1).final(name) * plan.rounds / 120
        assert outcomes[name].regret["small"].mean == pytest.approx(np.mean(lost) / SMALL.chance(1))
        assert outcomes[name].syncs["small"] == plan.syncs
    assert outcomes["secure-sum"].promise == "(1, 1e-05)"
    assert outcomes["secure-sum"].trusts == "two"
    assert (outcomes["isolated"].promise, outcomes["isolated"].verdict) == ("none", "-")


def test_an_action_at_random_has_regret_one() -> None:
    """A plan whose noise drowns everything plays at random; one that learns does better, beyond chance."""
    tiny = Privacy(1e-3, 1e-6)
    drowned, free = contest([KNOWN["local"], KNOWN["fed-lin-ucb"]], [SMALL], tiny, runs=30, seed=0, trials=20)
    mean, stderr = drowned.regret["small"]
    assert abs(mean - 1) < 4 * stderr < 0.4
    assert free.regret["small"].mean < 1 - 4 * free.regret["small"].stderr


def test_whoever_cannot_take_part_is_left_out_with_the_reason() -> None:
    only_there = Entrant("late", lambda asked: refused(asked) if asked.rounds == 31 else asked, None)
    longer = SMALL._replace(name="longer", rounds=31)
    (outcome,) = contest([only_there], [SMALL, longer], BUDGET, runs=1, seed=0, trials=20)
    assert list(outcome.regret) == ["small"]
    assert outcome.left_out == {"longer": "epsilon must be smaller"}


def test_whoever_takes_part_nowhere_has_neither_promise_nor_verdict() -> None:
    (outcome,) = contest([yours(refused)], [SMALL], BUDGET, runs=1, seed=0, trials=20)
    assert outcome.left_out == {"small": "epsilon must be smaller"}
    assert (outcome.trusts, outcome.promise, outcome.verdict, outcome.private) == ("-", "none", "-", False)


def test_a_file_that_is_wrong_stops_the_contest_before_anybody_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(asked: Plan) -> Plan:
        raise ArgumentError(FIELD, "must return a Plan")

    monkeypatch.setattr(contesting, "simulate", None)
    monkeypatch.setattr(contesting, "audit", None)
    with pytest.raises(ArgumentError, match="protocol must return a Plan"):
        contest([KNOWN["silo"], yours(wrong)], [SMALL], BUDGET, runs=1, seed=0, trials=20)


def test_your_own_plan_is_audited_as_it_is_cut_to_size() -> None:
    honest = yours(lambda asked: asked.changed(trust="silo"))
    open_ = yours(lambda asked: asked.changed(privacy=None))
    found = [contest([one], [SMALL], BUDGET, 1, 0, 300)[0] for one in (honest, open_)]
    assert [one.verdict for one in found] == ["holds", "broken"]
    assert [one.private for one in found] == [True, False]


def test_who_is_private_on_the_first_instance_alone_is_not_private() -> None:
    other = SMALL._replace(name="other", rounds=31)
    later = yours(lambda asked: asked.changed(trust="silo") if asked.rounds == 30 else asked.changed(privacy=None))
    (outcome,) = contest([later], [SMALL, other], BUDGET, runs=1, seed=0, trials=300)
    assert (outcome.trusts, outcome.promise, outcome.verdict) == ("all", "none", "broken")


def test_one_of_several_audits_is_believed_when_it_breaks_a_plan_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Verdict(NamedTuple):
        verdict: str
        epsilon_lower: float

    def audited(verdicts: dict[int, str]) -> str:
        monkeypatch.setattr(contesting, "audit", lambda case, trials, seed: Verdict(verdicts[seed], 0.0))
        places = [SMALL, SMALL._replace(name="other", rounds=31)]
        return contest([yours(lambda asked: asked.changed(trust="silo"))], places, BUDGET, 1, 5, 20)[0].verdict

    assert audited({5: "broken", 6: "holds"}) == "holds"
    assert audited({5: "broken", 6: "broken"}) == "broken"


def test_a_weaker_promise_than_was_asked_for_is_none() -> None:
    weaker = yours(lambda asked: asked.changed(trust="silo", privacy=Privacy(1.1, 1e-5)))
    (outcome,) = contest([weaker], [SMALL], BUDGET, runs=1, seed=0, trials=20)
    assert outcome.promise == "none"


def test_five_instances_of_which_two_need_a_file() -> None:
    assert list(INSTANCES) == ["synthetic", "clinic", "shop", "letor", "warfarin"]
    made = standard.instances(Paths(), share=0.5)
    assert [one.name for one in made] == ["synthetic", "clinic", "shop"]
    for one in made:
        assert one.rounds == INSTANCES[one.name].rounds / 2
        assert 0.05 < one.chance(0) < 0.6
    clinic, shop = made[1].task, made[2].task
    assert isinstance(clinic, Tabled)
    assert isinstance(shop, Tabled)
    for task, arms in ((clinic, 3), (shop, 20)):
        assert task.table.bounded
        assert set(np.diff(task.table.offsets)) == {arms}
    best = np.reshape(clinic.table.means, (-1, 3)).argmax(axis=1)
    assert min(np.mean(best == 0), np.mean(best == 2)) > 0.2  # no dose is right for all


def test_the_picture_is_the_same_for_the_same_numbers(tmp_path: Path) -> None:
    rows = [
        Standing("yours", "two", "none", "broken", 2.0, {"a": Estimate(0.5, 0.1), "b": Estimate(0.2, 0.0)}, {}, {}),
        Standing("silo", "own silo", "(1, 1e-05)", "holds", 0.1, {"a": Estimate(0.4, float("nan"))}, {}, {"b": "no"}),
    ]
    for name in ("one.svg", "two.svg"):
        draw_contest(rows, ["a", "b"], tmp_path / name, "title")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_the_tables_in_markdown_say_what_needs_a_file_and_who_was_left_out() -> None:
    rows = [
        Standing("a", "two", "(1, 1e-05)", "broken", 2.0, {"shop": Estimate(0.5, 0.1)}, {"shop": 7.0}, {"letor": "no"}),
        Standing("b", "two", "(1, 1e-05)", "holds", 0.1, {"shop": Estimate(0.4, float("nan"))}, {"shop": 3.4}, {}),
    ]
    assert (
        as_markdown(rows, ["shop", "letor"], "a title")
        == """a title

| protocol | trusts | DP | audit | shop | letor (by path) |
|---|---|---|---|---|---|
| a | two | no | broken | 0.500 ± 0.100 | - |
| b | two | yes | holds | 0.400 | - |

| protocol | shop: syncs, regret | letor (by path): syncs, regret |
|---|---|---|
| a | 7, 0.500 | - |
| b | 3, 0.400 | - |

- a is left out of letor: no
"""
    )


def test_every_preset_that_takes_part_has_a_case_of_its_own() -> None:
    assert {"fed-lin-ucb", "ldp", "silo", "secure-sum", "local", "dubey", "private-adaptive"} <= set(AUDITED)
