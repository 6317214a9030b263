"""Who comes and who counts: shares by cap and round, and silos that serve the two groups in two ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedbandit as fb
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions, unpack
from fedbandit.knowledge import LocalKnowledge, OwnData, local_knowledge, nothing_public, public_model
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, every
from fedbandit.simulator.attendance import Attendance
from fedbandit.simulator.engine import play_together
from fedbandit.simulator.population import Population
from fedbandit.simulator.randomness import VISIT, uniform, user_key
from fedbandit.simulator.tasks import synthetic
from tests.simulator.test_engine_reference import prefix_noise
from tests.simulator.transcribed import DIM, ROUNDS, SEED, SILOS, TASK, SameUsers, plan

HALF = Attendance(consenting=0.5)


# -- shares ------------------------------------------------------------------------------------------------------------


def test_visits_are_numbered_as_people_come() -> None:
    """Ten people, of whom five come once, three twice and two four times: 19 visits, 10 first ones, 5 second ones."""
    people = Attendance((0.5, 0.3, 0.0, 0.2))
    assert [people.share(cap, 1) for cap in (1, 2, 3, 4, 9)] == pytest.approx([10 / 19, 15 / 19, 17 / 19, 1, 1])
    assert people.share(None, 1) == 1


def test_until_people_come_back_every_visit_is_a_first_one() -> None:
    clinic = Attendance.up_to(5, mean=2.0, first_visits=30, consenting=0.8)
    assert clinic.counted(1, 29, 4).tolist() == pytest.approx([0.8, 0.8, 0.4, 0.4])
    assert sum(n * share for n, share in enumerate(clinic.people, 1)) == pytest.approx(2.0)


def test_up_to_a_maximum_alone_means_that_all_come_so_often() -> None:
    assert Attendance.up_to(4).people == (0, 0, 0, 1)
    assert Attendance.up_to(4, mean=1.0).people == (1, 0, 0, 0)
    assert Attendance.up_to(4, mean=4.0).people == pytest.approx((0, 0, 0, 1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"people": (0.5, 0.4)}, "people must be shares that add up to 1"),
        ({"people": ()}, "people must be shares"),
        ({"consenting": 1.5}, "consenting must lie between 0 and 1"),
        ({"first_visits": -1}, "first_visits must be"),
    ],
)
def test_what_is_no_attendance_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Attendance(**wrong)
    with pytest.raises(ValueError, match="mean must lie between 1 and the 3 visits"):
        Attendance.up_to(3, mean=4.0)


# -- played ------------------------------------------------------------------------------------------------------------


def transcribed(made: Plan, name: str, attendance: Attendance, run: int) -> np.ndarray:
    """Regret by round, visit by visit in numpy: the counted by the public model, the others by local knowledge."""
    users, drawn = SameUsers(TASK, run), prefix_noise(made, name, run, pooled=True)
    width, regret = made.protocol.width, np.zeros(ROUNDS)
    kept, batch, released = (np.zeros((SILOS, width), dtype=np.int64) for _ in range(3))
    squares, public, before = np.zeros(SILOS), nothing_public(made), 0
    known = local_knowledge(made, OwnData(kept, squares, np.zeros(SILOS), released), public)
    since = np.zeros((SILOS, width), dtype=np.int64)
    for t in range(1, ROUNDS + 1):
        for i in range(SILOS):
            coming = uniform(np.uint64(user_key(np.uint64(SEED), run, i, t, VISIT)))
            counts = coming < attendance.share(made.cap, t)
            x = users.contexts(t, i)
            more = (known.visits - before).mean()
            model = public.model if counts else _learnt(made, known, i, since[i], t - 1 + more)
            arm = linucb.decide(x, model)
            reward = users.reward(t, i, arm)
            means = [users.mean(t, i, a) for a in range(len(x))]
            regret[t - 1] += max(means) - means[arm]
            packed = contributions(x[arm], reward, made.bits, made.centre)
            (batch if counts else kept)[i] += packed
            since[i] += packed
            squares[i] += (reward - made.centre) ** 2
        if t in made.times:
            released += batch
            prefix = released.sum(axis=0) * 2.0**-made.bits + drawn[made.times.index(t)]
            public = public_model(made, made.times.index(t), prefix, t)
            known = local_knowledge(made, OwnData(released + kept, squares, np.full(SILOS, t), released), public)
            before, batch, since = t, np.zeros_like(batch), np.zeros_like(since)
    return np.cumsum(regret)


def _learnt(made: Plan, known: LocalKnowledge, silo: int, since: np.ndarray, visits: float) -> linucb.Model:
    """A silo's local knowledge at the last sync, and all its visits since."""
    bias, covariance = unpack(since * 2.0**-made.bits, DIM)
    one = LocalKnowledge(known.precision[silo] + covariance, known.bias[silo] + bias, np.asarray(visits))
    return one.model(made)


@pytest.mark.parametrize("trust", ["none", "silo", "secure-sum", "central"])
@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_every_decision_is_that_of_a_plain_transcription(trust: str, centre: float) -> None:
    made = plan(trust, "toeplitz", schedule=every(7), centre=centre, bits=30)
    clinic = Attendance.up_to(3, mean=1.5, first_visits=10, consenting=0.7)
    record = tuple(range(1, ROUNDS + 1))
    population = Population(TASK, SILOS, (2,), SEED)
    played = play_together(population, {"x": made}, "partly", record, lambda _: None, "float64", attendance=clinic)
    expected = transcribed(made, "x", clinic, 2)
    np.testing.assert_allclose(played["x"].regret[0], expected, rtol=0, atol=1e-9)
    other = transcribed(made, "x", Attendance(), 2)
    assert np.abs(other - expected).max() > 1e-3


def test_where_everybody_counts_nothing_changes() -> None:
    """Also if silos keep local knowledge that serves nobody."""
    made = plan("silo")
    population, record = Population(TASK, SILOS, (0, 1), SEED), (20, ROUNDS)
    lazy = play_together(population, {"x": made}, "lazy", record, lambda _: None, "float64")
    partly = play_together(population, {"x": made}, "partly", record, lambda _: None, "float64")
    np.testing.assert_allclose(lazy["x"].regret, partly["x"].regret, rtol=1e-12)
    assert partly["x"].uncounted is not None
    assert partly["x"].uncounted.visits.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["silo", "secure-sum", "central", "ldp", "sdp-vector-sum"])
def test_those_who_count_never_notice_how_the_others_are_served(name: str) -> None:
    """Releases are functions of the counted alone: the same decisions for them, to the last bit, whatever the rest."""
    base = Plan(4, 60, 3, Privacy(8.0, 0.1), schedule=every(6))
    made = plan_for(name, base, every(6))
    regrets = []
    for uncounted in ("local", "public"):
        result = fb.simulate(synthetic(3, 5), {"x": made.changed(uncounted=uncounted)}, runs=3, seed=1, attendance=HALF)
        totals = result.totals.sort("run")
        everybody = result.final("x") * made.rounds
        regrets.append((everybody - totals["uncounted_regret"].to_numpy(), totals["uncounted_regret"].to_numpy()))
        assert 80 < totals["uncounted"].mean() < 160  # type: ignore[operator]
    np.testing.assert_allclose(regrets[0][0], regrets[1][0], rtol=1e-12)
    assert not np.allclose(regrets[0][1], regrets[1][1])


def test_whom_nobody_counts_is_served_as_by_a_silo_alone() -> None:
    """If everybody opts out, regret is that of silos alone: the public model is noise."""
    base = Plan(5, 600, 4, Privacy(1.0, 1e-5), schedule=every(20))
    plans = {"federation": base, "alone": plan_for("isolated", base)}
    result = fb.simulate(synthetic(4, 5), plans, runs=6, attendance=Attendance(consenting=0.0))
    counted, others = result.by_count("federation")
    assert np.isnan(counted.mean)
    assert others.mean * base.silos == pytest.approx(result.regret("federation").mean)
    worse = result.excess("federation", "alone")
    assert worse.mean < 2 * worse.stderr


def test_those_who_stay_out_do_no_worse_than_by_either_source() -> None:
    base = Plan(8, 1_000, 6, Privacy(1.0, 1e-5), schedule=every(20), confidence="practical", centre=0.5)
    plans = {
        "local": base,
        "public": base.changed(uncounted="public"),
        "alone": plan_for("isolated", base),
    }
    result = fb.simulate(synthetic(6, 5), plans, runs=10, seed=7, attendance=HALF)
    (_, local), (_, public), alone = (*map(result.by_count, ("local", "public")), result.regret("alone"))
    assert local.mean < public.mean + 2 * np.hypot(local.stderr, public.stderr)
    assert local.mean < (alone.mean + 2 * np.hypot(local.stderr * base.silos, alone.stderr)) / base.silos


def test_the_cap_of_a_plan_decides_who_counts() -> None:
    base = Plan(3, 400, 3, Privacy(5.0, 0.1, participations=1), schedule=every(20))
    plans = {str(cap): base.changed(privacy=Privacy(5.0, 0.1, participations=cap)) for cap in (1, 2, 4)}
    result = fb.simulate(synthetic(3, 4), plans, runs=2, attendance=Attendance.up_to(4))
    left = {row["name"]: row["uncounted"] / 1200 for row in result.totals.filter(pl.col("run") == 0).to_dicts()}
    assert left["4"] == 0
    assert left["1"] == pytest.approx(0.75, abs=0.05)
    assert left["2"] == pytest.approx(0.5, abs=0.05)


def test_silos_that_act_on_raw_data_cannot_leave_anybody_out() -> None:
    eager = Plan(3, 40, 3, Privacy(5.0, 0.1), "silo", schedule=every(10), acting="eager")
    raw = Plan(3, 40, 3, trust="none", schedule=adaptive(2.0))
    for made in (eager, raw):
        with pytest.raises(ValueError, match="attendance must count every visit for plan 'x'"):
            fb.simulate(synthetic(3, 4), {"x": made}, runs=1, attendance=HALF)


def test_local_knowledge_is_for_lazy_silos_whose_people_go_nowhere_else() -> None:
    base = Plan(3, 40, 3, Privacy(5.0, 0.1), "silo", schedule=every(10))
    assert base.serves_uncounted == "local"
    assert base.changed(uncounted="public").serves_uncounted == "public"
    elsewhere = base.changed(privacy=Privacy(5.0, 0.1, silos_per_user=2))
    assert elsewhere.serves_uncounted == base.changed(acting="eager").serves_uncounted == "public"
    for made in ({"privacy": Privacy(5.0, 0.1, silos_per_user=2)}, {"acting": "eager"}):
        with pytest.raises(ValueError, match="uncounted must not be 'local'"):
            base.changed(uncounted="local", **made)
    with pytest.raises(ValueError, match="uncounted must be one of local, public; got 'both'"):
        base.changed(uncounted="both")


def test_visits_that_come_too_soon_do_not_count() -> None:
    """People come five times, every 40 rounds; a sync is 10 rounds long."""
    budget = Privacy(1.0, 0.1)
    base = Plan(2, 400, 2, budget, schedule=every(10))
    people = Attendance.up_to(5)
    for apart, between, share in ((0, 0, 1.0), (4, 40, 1.0), (5, 40, 0.6), (9, 40, 0.4), (4, 0, 0.2), (4, 1000, 1.0)):
        coming = replace(people, between=between)
        spaced = base.changed(privacy=replace(budget, participations=5, apart=apart))
        assert coming.share(5, 1, coming.every(spaced)) == pytest.approx(share)
        assert coming.all_counted(spaced) is (share == 1)
