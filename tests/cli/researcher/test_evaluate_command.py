"""`fedbandit evaluate` and `fedbandit silo log`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedbandit.bandit.policies import Policy
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.decision_log import DecisionLog
from tests.cli.harness import Command, assert_refused
from tests.federation.small import small_plan

ROWS = np.array([[0.9, 0.1], [0.2, 0.8], [-0.5, 0.5]])
PLAN = small_plan(policy=Policy("thompson", floor=0.3), rounds=2000)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A silo whose second action pays in half of the cases, the others never."""
    home = Home.create(tmp_path / "silo", name="north", role="silo", log_days=30)
    rng = np.random.default_rng(0)
    with Silo.open(tmp_path / "silo.db", PLAN, secret=bytes(32), log=DecisionLog(home.decision_log)) as silo:
        made = silo.decide_many(np.repeat(ROWS[None], 900, axis=0))
        silo.reward_all([(one.id, float(one.action == 1 and rng.random() < 0.5)) for one in made[:800]])
    return home.path


def test_from_a_silos_log_to_a_verdict(home: Path, fedbandit: Command, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "plan.json"
    other.write_text(json.dumps(PLAN.changed(policy=Policy("inverse-gap")).as_dict()))
    assert "900 decisions" in fedbandit("silo", "log", str(home), "--out", str(out)).out
    policies = ["always:1", "uniform", "model", "model:0", f"plan:{other}"]
    options = [word for name in policies for word in ("--policy", name)]
    picture, report = tmp_path / "worth.svg", tmp_path / "worth.html"
    said = fedbandit("evaluate", str(out), *options, "--plot", str(picture), "--html", str(report), "--json").json
    page = report.read_text()
    assert "as logged" in page
    assert all(name in page for name in ("always:1", "model:0", "What policies would have earned"))
    found = {one["policy"]: one["worth"]["dr"] for one in said["policies"]}
    assert list(found) == policies
    assert found["always:1"]["low"] < 0.5 < found["always:1"]["high"]
    assert found["uniform"]["low"] < 0.5 / 3 < found["uniform"]["high"]
    assert found["model"] == found["model:0"]
    assert said["unrewarded"] == 100
    assert picture.exists()
    text = fedbandit("evaluate", str(out))
    assert "as logged" in text.out
    assert "100 decisions without a reward are left out." in text.out
    assert "no guarantee covers them" in text.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("greedy", "policy must be uniform, always:ACTION, model, model:VERSION or plan:FILE, got 'greedy'"),
        ("always:9", "policy 'always 9' cannot be played: 800 decisions do not offer it"),
        ("always:high", "policy 'always high' must name an action by its index: the log has no names"),
        ("model:7", "policy must name a version of the model that the log holds (0), got 7"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    home: Path, fedbandit: Command, tmp_path: Path, policy: str, message: str
) -> None:
    fedbandit("silo", "log", str(home), "--out", str(tmp_path / "out"))
    assert_refused(fedbandit("evaluate", str(tmp_path / "out"), "--policy", policy), message)
    (tmp_path / "out" / "models.parquet").unlink()
    assert_refused(fedbandit("evaluate", str(tmp_path / "out"), "--policy", "model:0"), "needs models.parquet next to")


def test_files_that_are_no_log(fedbandit: Command, tmp_path: Path) -> None:
    assert_refused(
        fedbandit("evaluate", str(tmp_path / "no.parquet")), "log must be a Parquet file or a folder with one"
    )
    (tmp_path / "x.parquet").write_text("no")
    assert_refused(
        fedbandit("evaluate", str(tmp_path / "x.parquet")), "log must be a Parquet file or a folder with one"
    )
    Home.create(tmp_path / "quiet", name="south", role="silo")
    assert_refused(
        fedbandit("silo", "log", str(tmp_path / "quiet"), "--out", str(tmp_path / "o")), "has no log of decisions"
    )
