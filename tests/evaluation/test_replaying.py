"""Replays against plain loops, and against the truth of tables of which it is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedbandit.bandit.linucb import decide
from fedbandit.bandit.policies import Policy
from fedbandit.bandit.statistics import contributions
from fedbandit.evaluation.past import Columns, past_of
from fedbandit.evaluation.replayed import ALONE, BEST, PRACTICE, replay
from fedbandit.evaluation.replaying import NOBODY, Tape, _alone, alone, federated, fitted_plan, fixed
from fedbandit.plan import Plan
from fedbandit.presets import isolated, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, clock, every
from fedbandit.simulator.population import NEVER, Delays
from tests.evaluation.tables import JUDGED, KNOWN, SCHEMA, TOSSED, past, table

OPEN = Plan(3, 50, schema=SCHEMA, trust="none", schedule=every(25), confidence="practical")
PRIVATE = Plan(3, 10, schema=SCHEMA, privacy=Privacy(2.0, 1e-4), confidence="practical", centre=0.5)


def batches(tape: Tape, plan: Plan, run: int = 0) -> np.ndarray:
    """The choices of a federation without noise, person by person, by the definition: (people,)."""
    found, total = tape.past, np.zeros(plan.protocol.width, dtype=np.int64)
    chosen, waiting = np.full(len(found), NOBODY), list[tuple[int, np.ndarray]]()
    first, model = 0, plan.fit(np.zeros(plan.protocol.width), 0).model
    assert found.outcomes is not None
    for time in plan.times:
        for step in range(first, time):
            for person in tape.who[run, :, step]:
                if person != NOBODY:
                    action = chosen[person] = decide(found.rows[person], model)
                    row = contributions(
                        found.rows[person, action], found.outcomes[person, action], plan.bits, plan.centre
                    )
                    waiting.append((int(tape.comes[run, person]), row))
        total += sum((row for comes, row in waiting if comes <= time), np.zeros_like(total))
        waiting = [one for one in waiting if one[0] > time]
        first, model = time, plan.fit(np.asarray(total * 2.0**-plan.bits, dtype=np.float64), time).model
    return chosen


@pytest.mark.parametrize("delays", [Delays(), Delays(mean=20.0, missing=0.2)], ids=["at once", "late"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_federation_is_replayed_person_by_person(shuffle: bool, delays: Delays) -> None:
    tape = Tape(past(count=400), 2, 5, shuffle, delays)
    plan = fitted_plan(OPEN, tape.past, tape.steps)
    found = federated("x", plan, tape).chosen
    for run in range(2):
        np.testing.assert_array_equal(found[run], batches(tape, plan, run))
    assert (found[0] != found[1]).any() == (shuffle or delays != Delays())


@pytest.mark.parametrize("delays", [Delays(), Delays(mean=6.0, missing=0.2)], ids=["at once", "late"])
def test_a_silo_alone_learns_from_each_person_when_the_reward_comes(delays: Delays) -> None:
    tape = Tape(past(count=300), 2, 1, delays=delays)
    plan = fitted_plan(OPEN, tape.past, tape.steps)
    found, own = alone(plan, tape).chosen, isolated(plan)
    rows, outcomes = tape.past.rows, tape.past.outcomes
    assert outcomes is not None
    for run, silo in np.ndindex(2, 3):
        people = tape.who[run, silo][tape.who[run, silo] != NOBODY]
        for step, person in enumerate(people, 1):
            known = [one for one in people[: step - 1] if tape.comes[run, one] < step]
            x = rows[known, found[run, known]]
            inverse = np.linalg.inv(own.regulariser * np.eye(plan.dim) + x.T @ x)
            theta = inverse @ (x.T @ outcomes[known, found[run, known]])
            widths = np.sqrt(np.einsum("ad,de,ae->a", rows[person], inverse, rows[person]))
            assert found[run, person] == np.argmax(rows[person] @ theta + own.radius(step) * widths)


def test_a_silo_alone_is_not_held_to_radii_that_cost_it() -> None:
    """By the theory's radii alone it earned less than the federation, and by the practical ones more."""
    tape = Tape(past(count=300), 2, 1)
    bold = fitted_plan(OPEN, tape.past, tape.steps)
    careful = bold.changed(confidence="theory")
    np.testing.assert_array_equal(alone(careful, tape).chosen, alone(bold, tape).chosen)
    assert (_alone(isolated(careful), tape, lambda share: None).chosen != alone(bold, tape).chosen).any()


def test_the_tables_own_times_are_used() -> None:
    tape = Tape(past(replace(JUDGED, time="day", reward_time="known")), 1)
    assert tape.past.waits is not None
    come = tape.past.waits < NEVER
    assert 0.75 < come.mean() < 0.85
    np.testing.assert_array_equal(tape.comes[0, come], tape.step[0, come] + tape.past.waits[come])


def test_noise_and_policies_are_those_of_the_plan() -> None:
    tape = Tape(past(count=600), 3, 2)
    plan = fitted_plan(PRIVATE, tape.past, tape.steps)
    same = federated("x", plan, tape).chosen
    np.testing.assert_array_equal(same, federated("x", plan, tape).chosen)
    assert (same != federated("y", plan, tape).chosen).any(), "another name is other noise"
    random = federated("x", plan.changed(policy=Policy(floor=1.0)), tape).chosen
    assert abs((random == 0).mean() - 0.5) < 5 * np.sqrt(0.25 / random.size)


def test_a_plan_on_a_clock_keeps_its_periods() -> None:
    tape = Tape(past(count=900), 1)
    daily = PRIVATE.changed(schedule=clock(86400), rounds=10)
    plan = fitted_plan(daily, tape.past, tape.steps)
    people = -(-tape.steps // 10)
    assert plan.times == tuple(people * day for day in range(1, 11))
    assert (federated("x", plan, tape).chosen >= 0).all()


def test_people_whose_reward_never_came_are_not_counted_as_failures() -> None:
    """A fifth of the rewards is lost, whatever they were: worth stays what it is, in an interval that is wider."""
    kept = pl.when(pl.col("known").is_null()).then(None).otherwise(pl.col("paid"))
    times = replace(JUDGED, time="day", reward_time="known")
    lost = past_of(table(6000).with_columns(paid=kept), SCHEMA, times)
    found = replay(Tape(lost, 1), {"open": OPEN}, always=["drug", "rest"])
    whole = replay(Tape(past(JUDGED, count=6000), 1), {"open": OPEN}, always=["drug", "rest"])
    assert found.worth("practice").decisions == np.sum(~np.isnan(lost.done[1])) < 5000
    for action in ("always drug", "always rest"):
        assert found.worth(action).low < 0.5 < found.worth(action).high
        assert found.worth(action).stderr > whole.worth(action).stderr


# -- what is earned ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [KNOWN, TOSSED, JUDGED], ids=["known", "randomised", "observed"])
def test_a_fixed_treatment_is_worth_what_the_law_says(columns: Columns) -> None:
    """Its interval holds the truth; for the judged table the plain mean of those who were treated does not."""
    tape = Tape(past(columns, count=6000, seed=3), 1)
    found = replay(tape, {"open": OPEN}, always=["drug", "rest"])
    for action in ("drug", "rest"):
        worth = found.worth(f"always {action}")
        assert worth.low < 0.5 < worth.high, (action, worth)
        assert worth.high - worth.low < 0.08


def test_plain_means_of_a_judged_table_are_wrong() -> None:
    """What doubly robust estimates repair: those who get the drug are those whom it helps."""
    action, reward = past(JUDGED, count=6000, seed=3).done
    treated = reward[action == 0]
    assert treated.mean() - 0.5 > 5 * treated.std() / np.sqrt(len(treated))


def test_a_randomised_table_keeps_every_action_equally_often() -> None:
    tape = Tape(past(TOSSED, count=20_000), 1)
    for action in (0, 1):
        kept = ~np.isnan(fixed(action, tape).earned)
        assert abs(kept.mean() - 0.3) < 5 * np.sqrt(0.21 / 20_000)
    everybody = past(TOSSED, count=20_000).done[0]
    assert abs((everybody == 0).mean() - 0.3) > 0.3, "without rejection the drug is met far more often"


@pytest.mark.parametrize("columns", [KNOWN, TOSSED, JUDGED], ids=["known", "randomised", "observed"])
def test_learning_pays_and_noise_costs(columns: Columns, tmp_path: Path) -> None:
    """Who learns earns more than either treatment, up to the 0.675 of the best rule; a page and a picture say so."""
    tape = Tape(past(columns, count=9000, seed=1), 4)
    found = replay(tape, {"open": OPEN, "private": PRIVATE}, always=["drug"])
    assert found.excess("open", "always drug").low > 0.05
    assert found.worth("open").value < 0.7
    assert found.excess("private", "always drug").low > 0
    names = {"open", "private", ALONE, "always drug"} | ({BEST} if columns is KNOWN else {PRACTICE})
    assert set(found.names) == names
    curve = found.frame.filter(found.frame["name"] == "open")
    assert curve["mean"][-1] == pytest.approx(found.worth("open").value)
    assert curve["mean"][-1] > curve["mean"][3], "earnings grow"
    assert found.silos.filter(found.silos["name"] == "open")["silo"].to_list() == ["east", "north", "west"]
    assert "Assuming" in found._repr_html_()
    assert found.as_dict()["kind"] == tape.past.kind
    found.plot(tmp_path / "earned.svg")
    assert (tmp_path / "earned.svg").exists()


def test_intervals_of_a_replay_hold_the_truth() -> None:
    """95 % intervals of 300 tables, of a rule that does not learn: within three and a half binomial deviations."""
    hits = {"known": 0, "randomised": 0, "observed": 0}
    for seed in range(300):
        for name, columns in (("known", KNOWN), ("randomised", TOSSED), ("observed", JUDGED)):
            tape = Tape(past(columns, count=500, seed=seed), 1, seed)
            worth = replay_fixed(tape)
            hits[name] += worth[0] <= 0.5 <= worth[1]
    for name, count in hits.items():
        assert abs(count / 300 - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / 300), (name, count)


def replay_fixed(tape: Tape) -> tuple[float, float]:
    from fedbandit.evaluation.replayed import _worth

    found = _worth(fixed(0, tape).earned, 0.95)
    return found.low, found.high


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (OPEN.changed(schedule=adaptive(5.0)), "plan must act lazily on a public schedule"),
        (isolated(OPEN), "plan must act lazily on a public schedule"),
        (plan_for("local", PRIVATE), "trust must be one that does not depend on who comes when, got 'local'"),
        (Plan(3, 10, 4, trust="none"), "dim must be 10, the schema's, got 4"),
    ],
)  # fmt: skip
def test_plans_that_cannot_be_replayed_are_refused(plan: Plan, message: str) -> None:
    tape = Tape(past(count=100), 1)
    with pytest.raises(ValueError) as error:
        replay(tape, {"one": plan})
    assert str(error.value).startswith(message)
    with pytest.raises(ValueError, match=r"^always must be one of drug, rest"):
        replay(tape, {"one": OPEN}, always=["surgery"])
