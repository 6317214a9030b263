"""Policies judged by a log: what it can tell, what it refuses to, and how that is shown."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedbandit.bandit.linucb import Model
from fedbandit.bandit.policies import UCB, Policy
from fedbandit.evaluation.decisions import Decisions, from_frame, read_decisions
from fedbandit.evaluation.evaluating import evaluate
from fedbandit.evaluation.targets import Target, always, by_model, given, logged_model, suggested, uniform
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from tests.evaluation.logs import ARMS, DIM, World
from tests.evaluation.tables import SCHEMA

MODEL = Model(np.array([0.3, -0.5, 0.2]), np.diag([0.2, 0.3, 0.4]), np.asarray(1.5))


def log(count: int = 4000, seed: int = 0) -> Decisions:
    return World(4).log(count, np.random.default_rng(seed))[0]


def certain(decisions: Decisions) -> Decisions:
    """The same decisions as if the first of the allowed actions were always played."""
    first = np.zeros(len(decisions.rows))
    first[decisions.offsets[:-1]] = 1
    every = np.zeros(len(decisions), dtype=np.int64)
    return Decisions(decisions.rows, decisions.offsets, every, np.ones(len(decisions)), decisions.reward, logged=first)


# -- what policies do -------------------------------------------------------------------------------------------------


def test_uniform_shares_among_what_is_allowed() -> None:
    sets = Decisions(
        np.zeros((5, 2)),
        np.array([0, 3, 5]),
        np.array([1, 0]),
        np.full(2, 0.5),
        np.ones(2),
        allowed=np.array([False, True, True, True, True]),
    )
    np.testing.assert_allclose(uniform(sets), [0, 0.5, 0.5, 0.5, 0.5])
    assert always(1)(sets).tolist() == [0, 1, 0, 0, 1]
    with pytest.raises(ValueError, match=r"^policy 'always 0' cannot be played: 1 decisions do not offer it"):
        always(0)(sets)


def test_actions_are_found_by_name() -> None:
    sets = Decisions(
        np.zeros((4, 2)),
        np.array([0, 2, 4]),
        np.zeros(2, dtype=int),
        np.full(2, 0.5),
        np.ones(2),
        names=["low", "high", "high", "low"],
    )
    assert always("low")(sets).tolist() == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="must name an action by its index: the log has no names"):
        always("low")(log(10))


@pytest.mark.parametrize("policy", [UCB, Policy("thompson"), Policy("inverse-gap", floor=0.1)], ids=str)
def test_a_model_chooses_as_it_would_live(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    offsets, rows = np.array([0, 3, 8, 11]), rng.normal(size=(11, DIM))
    shut = np.ones(11, dtype=bool)
    sets = Decisions(rows, offsets, np.zeros(3, dtype=int), np.ones(3), np.ones(3))
    found = by_model(MODEL, policy)(sets)
    for first, last in pairwise(offsets):
        spreads = 1.5 * np.linalg.norm(rows[first:last] @ MODEL.root, axis=1)
        expected = policy.probabilities(rows[first:last] @ MODEL.theta, spreads)
        np.testing.assert_allclose(found[first:last], expected, atol=1e-12)
    shut[[0, 4]] = False
    restricted = by_model(MODEL, policy)(
        Decisions(rows, offsets, np.full(3, 1), np.ones(3), np.ones(3), allowed=shut | (np.arange(11) == 4))
    )
    assert restricted[0] == 0
    np.testing.assert_allclose(restricted[3:], found[3:], atol=1e-12)


def test_the_policy_that_was_logged_is_worth_its_mean() -> None:
    decisions = log()
    assert decisions.logged is not None
    found = evaluate(decisions, {"itself": given(decisions.logged)})
    itself = found["itself"].worth
    assert itself["ips"].value == itself["snips"].value == pytest.approx(found.logged.value)
    assert itself["ips"].effective == pytest.approx(len(decisions))


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_nobody_learns_from_a_certain_log_about_another_policy() -> None:
    found = evaluate(certain(log()), {"first": always(0), "uniform": uniform})
    assert found["first"].refused is None
    assert found["uniform"].refused == "75.0% of what it does has probability 0 in the log"
    assert found["uniform"].worth == {}


def test_lacking_support_shows_in_the_weights_where_only_propensities_are_known() -> None:
    decisions = certain(log())
    bare = Decisions(decisions.rows, decisions.offsets, decisions.action, decisions.propensity, decisions.reward)
    assert str(evaluate(bare, {"uniform": uniform})["uniform"].refused).startswith("its weights have mean 0.25")


def test_untrue_propensities_are_noticed() -> None:
    decisions = log()
    wrong = Decisions(
        decisions.rows, decisions.offsets, decisions.action, np.minimum(1, 1.3 * decisions.propensity), decisions.reward
    )
    assert "are not true" in str(evaluate(wrong, {"uniform": uniform})["uniform"].refused)


def test_a_log_that_is_worth_few_decisions_is_refused() -> None:
    decisions = log(40)
    rare: Target = by_model(MODEL, UCB)
    assert "are needed" in str(evaluate(decisions, {"rare": rare})["rare"].refused)


@pytest.mark.parametrize("count", [1, 5, 49])
def test_a_short_log_tells_nothing_not_even_of_what_was_played(count: int) -> None:
    decisions = log(count)
    assert decisions.logged is not None
    found = evaluate(decisions, {"itself": given(decisions.logged)})["itself"]
    assert found.refused == f"the log is worth {count:.1f} decisions for it, and 50 are needed"


@pytest.mark.parametrize(("uncommon", "said"), [(0, True), (9, True), (10, False)])
def test_rewards_that_are_nearly_all_alike_are_remarked_on(uncommon: int, said: bool) -> None:
    """All 0, the interval is from 0 to 0: certain, and wrong."""
    rewards = (np.arange(500) < uncommon).astype(float)
    remarks = evaluate(replace(log(500), reward=rewards), {}).remarks
    assert remarks == [f"all but {uncommon} of 500 rewards are the same: intervals are too narrow"] * said


def test_few_rewards_that_matter_to_a_policy_are_remarked_on() -> None:
    """Of 3,000 decisions one in a hundred paid: by weight a handful, and one interval in four misses."""
    world, rng = World(4), np.random.default_rng(1)
    decisions, target = world.log(3000, rng)
    rare = replace(decisions, reward=decisions.reward * (rng.random(3000) < 0.01))
    found = evaluate(rare, {"target": given(target)})
    assert found.uncommon >= 10
    assert found["target"].telling < 10
    (remark,) = found.remarks
    assert remark.startswith(f"the worth of target rests on {found['target'].telling:.1f} rewards that differ")
    assert evaluate(decisions, {"target": given(target)}).remarks == []


def test_without_propensities_only_agreement_is_told() -> None:
    decisions = log()
    unknown = np.where(np.arange(len(decisions)) < 10, np.nan, decisions.propensity)
    blind = Decisions(decisions.rows, decisions.offsets, decisions.action, unknown, decisions.reward)
    found = evaluate(blind, {"uniform": uniform})["uniform"]
    assert found.refused == "10 decisions have no probability in the log"
    assert found.agreement == pytest.approx(0.25)


def test_what_is_no_policy_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^policy must have probabilities that add up to 1"):
        evaluate(log(10), {"half": lambda decisions: uniform(decisions) / 2})
    with pytest.raises(ValueError, match=r"^model must have dimension 3, the log's, got 2"):
        evaluate(log(10), {"other": by_model(Model(np.zeros(2), np.eye(2), np.asarray(1.0)), UCB)})
    with pytest.raises(ValueError, match="does not say what the model would have done"):
        evaluate(log(10), {"model": suggested})


# -- files and pages --------------------------------------------------------------------------------------------------


def frame_of(decisions: Decisions) -> pl.DataFrame:
    count = len(decisions)
    return pl.DataFrame(
        {
            "rows": decisions.rows.reshape(count, ARMS, DIM).tolist(),
            "action": decisions.action,
            "propensity": decisions.propensity,
            "reward": decisions.reward,
            "probabilities": np.asarray(decisions.logged).reshape(count, ARMS).tolist(),
        }
    )


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    decisions = log(50)
    file = tmp_path / "log.parquet"
    frame_of(decisions).write_parquet(file)
    read, models = read_decisions(file)
    assert models is None
    for name in ("rows", "offsets", "action", "propensity", "reward", "logged"):
        np.testing.assert_array_equal(getattr(read, name), getattr(decisions, name))


def test_decisions_without_a_reward_are_counted_and_left_out() -> None:
    frame = frame_of(log(50)).with_columns(
        reward=pl.when(pl.int_range(50) < 8).then(None).otherwise(pl.col("reward")),
        allowed=pl.Series([None] * 49 + [[0, 1, 2, 3]], dtype=pl.List(pl.Int64)),
    )
    read = from_frame(frame)
    assert (len(read), read.unrewarded) == (42, 8)
    assert evaluate(read, {}).unrewarded == 8


def test_where_the_application_chose_the_models_probabilities_are_not_those_of_the_log() -> None:
    read = from_frame(frame_of(log(50)).with_columns(own=pl.lit(True)))
    assert read.logged is None
    assert read.suggested is not None


def test_a_silo_that_serves_records_logs_the_names_of_its_actions(tmp_path: Path) -> None:
    log_ = DecisionLog(tmp_path / "log.db")
    plan = Plan(3, 100, schema=SCHEMA, privacy=Privacy(1.0, 0.1), visits="public", policy="thompson")  # type: ignore[arg-type]
    with Silo.open(tmp_path / "silo.db", plan, secret=bytes(32), log=log_) as silo:
        made = [silo.decide(context={"age": number / 100 - 1, "sex": "f"}) for number in range(200)]
        silo.reward_all([(one.id, float(one.action == 1)) for one in made])
        decisions = from_frame(log_.frame())
    assert decisions.names == ["drug", "rest"] * 200
    found = evaluate(decisions, {"rest": always("rest"), "drug": always("drug")})
    assert found["rest"].worth["snips"].value == 1
    assert found["drug"].worth["snips"].value == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": pl.lit(1.5)}, "reward must lie in"),
        ({"action": pl.lit(4)}, "action must be an index"),
        ({"propensity": pl.lit(0.0)}, "propensity must lie above 0"),
        ({"reward": pl.lit(None, dtype=pl.Float64)}, "log must hold at least one decision with a reward"),
        ({"probabilities": pl.lit([0.5, 0.5])}, "probabilities must have one number per action"),
        ({"names": pl.lit(["a", "b"])}, "names must be one per action"),
        ({"names": pl.lit("a")}, "names must be a list of texts in every decision of the log, got a column of String"),
        ({"rows": pl.lit(3)}, "rows must be lists of lists of numbers"),
        ({"rows": pl.lit([0.5, 0.5])}, "rows must be lists of lists of numbers"),
        ({"rows": pl.col("rows").list.eval(pl.lit([math.nan]))}, "rows must hold finite numbers"),
        ({"rows": pl.when(pl.col("action") > 0).then("rows")}, "rows must be known in every decision"),
        ({"action": pl.lit("low")}, "action must be a whole number"),
        ({"action": pl.lit(0.5)}, "action must be a whole number"),
        ({"action": pl.lit(None, dtype=pl.Int64)}, "action must be known in every decision"),
        ({"reward": pl.lit("yes")}, "reward must be a number"),
        ({"propensity": pl.lit("half")}, "propensity must be a number"),
        ({"allowed": pl.lit([5])}, "allowed must be indices into the actions of its decision"),
        ({"allowed": pl.lit([-1])}, "allowed must be indices into the actions of its decision"),
        ({"allowed": pl.lit([], dtype=pl.List(pl.Int64))}, "allowed must be indices into the actions of its decision"),
        ({"allowed": pl.lit("all")}, "allowed must be a list of whole numbers"),
    ],
)
def test_a_log_that_cannot_be_is_refused(change: dict[str, pl.Expr], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        from_frame(frame_of(log(20)).with_columns(**change))


def test_versions_of_a_model_come_from_the_log() -> None:
    models = pl.DataFrame(
        {
            "plan": ["p", "p"],
            "version": [0, 3],
            "theta": [[0.0] * 3, MODEL.theta.tolist()],
            "root": [np.eye(3).ravel().tolist(), MODEL.root.ravel().tolist()],
            "radius": [1.0, 1.5],
            "policy": ['{"name": "ucb"}', '{"name": "thompson", "scale": 0.5}'],
        }
    )
    decisions = log(20)
    expected = by_model(MODEL, Policy("thompson", scale=0.5))(decisions)
    np.testing.assert_array_equal(logged_model(models)(decisions), expected)
    np.testing.assert_array_equal(logged_model(models, 3)(decisions), expected)
    np.testing.assert_array_equal(logged_model(models, 3, UCB)(decisions), by_model(MODEL, UCB)(decisions))
    with pytest.raises(ValueError, match=r"that the log holds \(0, 3\), got 2"):
        logged_model(models, 2)


def test_the_newest_model_is_that_of_the_last_term_whatever_its_number(tmp_path: Path) -> None:
    """Versions begin anew with a term, and hashes of plans are in no order."""
    plans = sorted((Plan(3, rounds, 3, Privacy(1.0, 1e-5)) for rounds in (50, 60)), key=lambda plan: plan.hash)
    for earlier, later in (plans, plans[::-1]):
        log_ = DecisionLog(tmp_path / f"{later.hash}.db")
        log_.model(7, replace_theta(0.1), earlier)
        log_.model(0, replace_theta(0.2), later)
        log_.model(7, replace_theta(0.3), later)
        log_.model(1, replace_theta(0.4), later)
        models = log_.models()
        log_.close()
        assert [row[0] for row in models["theta"]] == [0.1, 0.2, 0.3, 0.4]
        decisions = log(20)
        for version, theta in ((None, 0.4), (7, 0.3)):
            expected = by_model(replace_theta(theta), UCB)(decisions)
            np.testing.assert_array_equal(logged_model(models, version)(decisions), expected)


def replace_theta(first: float) -> Model:
    return MODEL._replace(theta=np.array([first, -0.5, 0.2]))


def test_models_that_cannot_be_read_are_refused_as_decisions_are(tmp_path: Path) -> None:
    frame_of(log(20)).write_parquet(tmp_path / "decisions.parquet")
    (tmp_path / "models.parquet").write_text("no")
    with pytest.raises(ValueError, match=r"^log must be a Parquet file or a folder with one, got '.*models\.parquet'"):
        read_decisions(tmp_path)


def test_the_page_names_every_policy_and_escapes_it(tmp_path: Path) -> None:
    found = evaluate(log(), {"uniform": uniform, "<b>": always(2), "none": given(certain(log()).logged)})  # type: ignore[arg-type]
    page = found._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "no guarantee covers them" in page
    assert found.frame.shape == (1 + 3 * 3, 10)
    refused = evaluate(certain(log()), {"uniform": uniform})
    assert "refused: 75.0%" in refused._repr_html_()
    for one in (found, refused):
        one.plot(tmp_path / "worth.svg")
        assert (tmp_path / "worth.svg").read_text().startswith("<?xml")
    assert found.as_dict()["policies"][0]["worth"]["dr"]["decisions"] == 4000


@pytest.mark.filterwarnings("error")
def test_a_probability_of_next_to_nothing_leaves_a_log_worth_one_decision() -> None:
    """Its weight is the largest there is; its square was infinite, and nothing was refused."""
    decisions = log(500)
    tiny = replace(decisions, propensity=np.where(np.arange(500) == 0, 1e-300, decisions.propensity))
    assert "the log is worth 1.0 decisions for it" in str(evaluate(tiny, {"uniform": uniform})["uniform"].refused)
