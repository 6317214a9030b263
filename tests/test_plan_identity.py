"""A plan's identity outlives versions: what silos agreed on, ledgers name and stores are bound to."""

import dataclasses
import json
from pathlib import Path

import pytest

from fedbandit.bandit.policies import Policy
from fedbandit.plan import Plan
from fedbandit.plan_data import LATER
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import at, clock, every, growing

VECTORS = Path(__file__).parent / "vectors" / "plans.json"
BUDGET = Privacy(1.0, 1e-6)
PLANS = {
    "default": Plan(12, 365, 20, BUDGET, schedule=clock(86_400)),
    "silo, growing": Plan(3, 1000, 5, BUDGET, trust="silo", schedule=growing(1.2)),
    "tree, add-remove": Plan(4, 64, 3, Privacy(0.5, 1e-5, "add-remove", 2), mechanism="tree", schedule=every(8)),
    "blt, cohort": Plan(10, 100, 4, BUDGET, mechanism="blt", cohort=6, schedule=clock(60, 1.1)),
    "central": Plan(2, 10, 2, BUDGET, trust="central", schedule=at(2, 5, 10)),
    "no budget": Plan(2, 10, 2, None, trust="none", schedule=every(5)),
    "people, thompson": Plan(5, 30, 6, BUDGET, schedule=clock(3600), people=20, policy=Policy("thompson")),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_who_they_were(name):
    """A field that is new, with its default, must not be in it: name it in LATER. If a plan means something else now,
    it must have another hash, and then its entry here changes with a line in the changelog."""
    known = json.loads(VECTORS.read_text())
    assert PLANS[name].hash == known[name]["hash"]
    assert Plan.from_dict(known[name]["plan"]).hash == known[name]["hash"]
    assert PLANS[name].as_dict() == known[name]["plan"]


def test_a_new_field_with_its_default_changes_nobody(monkeypatch):
    """As if the next version had one more field: a plan that does not use it is the same, one that does is another."""
    import fedbandit.plan_data as module

    @dataclasses.dataclass(frozen=True)
    class Next(Plan):
        novelty: int = 0

    now = PLANS["default"]
    fields = {field.name: getattr(now, field.name) for field in dataclasses.fields(Plan)}
    assert Next(**fields).hash != now.hash  # nobody has named it yet
    monkeypatch.setitem(module.LATER, "novelty", 0)
    assert Next(**fields).hash == now.hash
    assert Next(**fields, novelty=1).hash != now.hash


def test_what_was_added_has_the_default_that_it_meant():
    defaults = {field.name: field.default for field in dataclasses.fields(Plan)}
    for name, meant in LATER.items():
        assert defaults[name] == meant, name
