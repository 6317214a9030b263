"""Folders as readers of some pages already have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fedbandit as fb
from fedbandit.federation.setup.home import Home
from fedbandit.federation.store.decision_log import DecisionLog
from tests.federation.small import small_plan
from tests.simulator.data import cohorts, texts

__all__ = ["data_sets", "decisions_logged", "log_and_table", "plan_and_parties"]

PLAN = """
silos = 2
rounds = 30
dim = 2
trust = "secure-sum"
privacy = {epsilon = 1.0, delta = 1e-5}
schedule = {kind = "clock", period = 86400.0}
"""
SCHEMA = """
actions = ["low", "high"]

[context.age]
type = "number"
low = 18
high = 100
"""


def plan_and_parties(folder: Path) -> None:
    """A plan's file, and the directories of its parties after two days."""
    (folder / "plan.toml").write_text(PLAN)
    plan = fb.Plan.load(folder / "plan.toml")
    with fb.Federation.local(plan, ["hospital-a", "hospital-b"], folder=folder / "trial") as federation:
        federation.tick(2)
    for name in ("hospital-a", "analyzer"):
        (folder / "trial" / name).rename(folder / name)


def log_and_table(folder: Path) -> None:
    """A log of decisions, and a table of patients with the dose that was right."""
    decisions_logged(folder / "hospital-a")
    rows = [f"{18 + 7 * n % 80},{'low' if 7 * n % 80 > 40 else 'high'}\n" for n in range(200)]
    (folder / "patients.csv").write_text("age,dose\n" + "".join(rows))
    (folder / "schema.toml").write_text(SCHEMA)


def data_sets(folder: Path) -> None:
    """Judged queries and patients, made up in the form of the paper's data sets."""
    texts.write(folder / "judged.txt", texts.judged(60, 8))
    cohorts.write(folder / "patients.csv", cohorts.cohort(80))


def decisions_logged(home: Path) -> None:
    """The directory of a silo with a log of sixty decisions, half of them random."""
    plan = small_plan(policy={"name": "ucb", "floor": 0.5}, rounds=1000)
    log = DecisionLog(Home.create(home, name="a", role="silo", log_days=90).decision_log)
    with fb.Silo.open(home / "silo.db", plan, log=log) as silo:
        made = silo.decide_many(np.repeat(np.eye(2)[None], 60, axis=0))
        silo.reward_all([(one.id, float(one.action)) for one in made])
