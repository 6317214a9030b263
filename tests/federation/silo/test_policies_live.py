"""Policies in a live silo: the choices of `bandit.policies`, propensities that are true, and the application's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from fedbandit.bandit import linucb
from fedbandit.bandit.policies import Policy
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.timing import DAY
from fedbandit.plan import Plan
from tests.federation.small import small_plan
from tests.statistical import ALPHA

ROWS = np.array([[0.9, 0.1], [0.2, 0.8], [-0.5, 0.5], [0.1, 0.1]])
THOMPSON = small_plan(policy=Policy("thompson", floor=0.2))


def opened(folder: Path, plan: Plan, log: DecisionLog | None = None) -> Silo:
    return Silo.open(folder / "silo.db", plan, secret=bytes(32), log=log)


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[Silo]:
    with opened(tmp_path, THOMPSON) as one:
        yield one


def expected(plan: Plan, rows: np.ndarray) -> np.ndarray:
    model = plan.fit(np.zeros(plan.protocol.width), 0).model
    return plan.policy.probabilities(*linucb.scores(rows, model))


def test_choices_come_as_often_as_the_policy_says(silo: Silo) -> None:
    """Chi-square of size ALPHA over one by one, many at once and a registered set; another floor would be rejected."""
    silo.register("menu", ROWS)
    made = [silo.decide(ROWS) for _ in range(1500)] + [silo.decide("menu") for _ in range(1500)]
    made += silo.decide_many(np.repeat(ROWS[None], 12_000, axis=0))
    likely = expected(THOMPSON, ROWS)
    assert {(one.action, one.propensity) for one in made} == set(enumerate(likely.tolist()))
    counts = np.array([Counter(one.action for one in made)[action] for action in range(4)])

    def accepted(law: np.ndarray) -> bool:
        return bool(((counts - len(made) * law) ** 2 / (len(made) * law)).sum() <= chi2.isf(ALPHA, 3))

    assert accepted(likely)
    assert not accepted(expected(THOMPSON.changed(policy=Policy("thompson", floor=0.5)), ROWS))


def test_an_action_that_is_not_allowed_has_no_probability(silo: Silo) -> None:
    likely = expected(THOMPSON, ROWS[[1, 3]])
    silo.register("menu", ROWS)
    for actions in (ROWS, "menu"):
        made = {(one.action, one.propensity) for one in (silo.decide(actions, allowed=[3, 1]) for _ in range(200))}
        assert made == {(1, likely[0]), (3, likely[1])}


def test_by_default_the_choice_is_certain(tmp_path: Path) -> None:
    with opened(tmp_path, small_plan()) as silo:
        assert {silo.decide(ROWS)[1:4] for _ in range(50)} == {(0, 0, 1.0)}
        assert {one[1:4] for one in silo.decide_many(np.repeat(ROWS[None], 50, axis=0))} == {(0, 0, 1.0)}


# -- the application's own choice -------------------------------------------------------------------------------------


def test_an_apprentice_plays_what_the_application_chose(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    with opened(tmp_path, small_plan(apprentice=True), log) as silo:
        silo.register("menu", ROWS)
        known = silo.decide("menu", chosen=2, propensity=0.25)
        assert known[1:4] == (2, 0, 0.25)
        assert silo.decide(ROWS, chosen=1).propensity is None
        assert silo.decide(ROWS)[1:4] == (0, 0, 1.0), "and the model chooses where the application does not"
        silo.reward(known.id, 0.5)
        ((features, reward),) = silo.store.batch(1, 0)
        assert (np.frombuffer(features).tolist(), reward) == (ROWS[2].tolist(), 0.5), "that is what is learnt from"
        frame = log.frame()
        assert frame["own"].to_list() == [True, True, False]
        assert frame["probabilities"].to_list() == [[1.0, 0.0, 0.0, 0.0]] * 3, "what the model would have done"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chosen": 4}, "chosen must lie between 0 and 3, got 4 to 4"),
        ({"chosen": 1, "allowed": [0, 2]}, "chosen must be one of the actions allowed, got 1"),
        ({"chosen": 1, "propensity": 0.0}, "propensity must be above 0: the action was chosen"),
        ({"chosen": 1, "propensity": 1.5}, "propensity must lie in [0, 1], got 1.5"),
        ({"propensity": 0.5}, "propensity must be left out unless the application has chosen: the policy has its own"),
    ],
)
def test_what_cannot_have_been_chosen_is_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with opened(tmp_path, small_plan(apprentice=True)) as silo, pytest.raises(ValueError) as error:
        silo.decide(ROWS, **options)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_without_the_plans_word_nobody_chooses_for_the_model(silo: Silo) -> None:
    with pytest.raises(ValueError, match=r"^chosen must be left out: under this plan the model chooses"):
        silo.decide(ROWS, chosen=1)


# -- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_holds_what_was_decided_and_what_came_of_it(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    with opened(tmp_path, THOMPSON, log) as silo:
        first, *many = [silo.decide(ROWS, allowed=[1, 3]), *silo.decide_many(np.repeat(ROWS[None], 3, axis=0))]
        silo.reward(first.id, 1.0)
        silo.reward(first.id, 1.0)
        silo.reward_all([(many[1].id, 0.25)])
        folder = log.export(tmp_path / "out")
    import polars as pl

    frame = pl.read_parquet(folder / "decisions.parquet").sort("decision")
    made = sorted([first, *many], key=lambda one: one.id[:16])
    assert frame["decision"].to_list() == [one.id[:16] for one in made]
    assert frame["action"].to_list() == [one.action for one in made]
    assert frame["propensity"].to_list() == [one.propensity for one in made]
    assert frame["rows"].to_list() == [ROWS.tolist()] * 4
    rewards = dict(zip(frame["decision"], frame["reward"], strict=True))
    assert [rewards[one.id[:16]] for one in (first, *many)] == [1.0, None, 0.25, None]
    restricted = frame.filter(pl.col("allowed").is_not_null())
    assert restricted["allowed"].to_list() == [[1, 3]]
    np.testing.assert_allclose(
        restricted["probabilities"].to_list()[0],
        [0, *expected(THOMPSON, ROWS[[1, 3]])[:1], 0, *expected(THOMPSON, ROWS[[1, 3]])[1:]],
    )
    models = pl.read_parquet(folder / "models.parquet")
    assert models.select("plan", "version").rows() == [(THOMPSON.hash, 0)]
    assert (folder.stat().st_mode & 0o077, (tmp_path / "log.db").stat().st_mode & 0o077) == (0, 0)


def test_the_log_forgets_after_its_days(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db", days=2)
    for day in range(4):
        log.decided(f"{day:016d}rest", day * DAY, 0, ROWS, 1, 0.5, np.full(4, 0.25))
    log.expire(4 * DAY - 1)
    assert log.frame()["at"].to_list() == [2 * DAY, 3 * DAY]
    log.close()
    assert b"%016d" % 0 not in b"".join(path.read_bytes() for path in tmp_path.glob("log.db*"))


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = DecisionLog(tmp_path / "log.db")
    log._connection.execute("DROP TABLE decisions")
    with opened(tmp_path, THOMPSON, log) as silo:
        silo.reward(silo.decide(ROWS).id, 1.0)
        log.flush()
        assert "entries of the decision log are lost" in caplog.text
        assert silo.decide(ROWS).id


def test_without_a_log_nothing_is_written(silo: Silo, tmp_path: Path) -> None:
    silo.decide(ROWS)
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"silo.db", "silo.db.count", "silo.db.lock"}
