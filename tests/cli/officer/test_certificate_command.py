"""`fedbandit certificate`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fedbandit import Plan, Privacy, adaptive, every
from fedbandit.audit.auditor import Check
from fedbandit.audit.cases import reduced
from fedbandit.audit.certificate import OWN_SILO, certificate, promise_in_words
from fedbandit.audit.pages import markdown
from fedbandit.audit.report import audit
from tests.cli.officer.running import run


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_certificate_is_one_page_of_computed_figures(tmp_path: Path, ending: str) -> None:
    plan = Plan(silos=20, rounds=500, dim=4, privacy=Privacy(1.0, 1e-5), colluding=3)
    file = tmp_path / f"ours.{ending}"
    file.write_text(json.dumps(plan.as_dict()) if ending == "json" else _toml(plan.as_dict()))
    result = run("certificate", file, "--out", tmp_path, "--trials", 300, "--seed", 4, "--workers", 1)
    assert result.exit_code == 0, result.exception
    page = (tmp_path / "ours.certificate.md").read_text()
    assert page.strip() == result.stdout.strip()
    for text in (*plan.guarantee.steps, *plan.guarantee.assumes, plan.hash, "seed 4", "300 times", "Verdict: holds"):
        assert text in page
    for question, answer in plan.guarantee.answers:
        assert f"| {question} | {answer} |" in page
    assert "any 3 other silos together with either the mixer or the analyzer" in page
    assert plan.trusting.who in page
    assert "At most 3 silos may collude with the mixer or the analyzer, but not with both." in page
    web = (tmp_path / "ours.certificate.html").read_text()
    assert web.startswith("<!doctype html>")
    assert "http" not in web.replace("http-equiv", "")  # nothing is loaded from elsewhere


def test_certificate_says_what_the_checks_and_the_live_path_said() -> None:
    plan = Plan(5, 40, 2, Privacy(1.0, 1e-5), trust="silo")
    sound = audit(reduced(plan), trials=50)
    text = markdown(certificate(plan, sound, date(2026, 1, 1)))
    assert "tests of the noise itself and of times and sizes of messages came out as claimed" in text
    assert "was not part of this audit" in text
    broken = replace(sound, live=True, checks=(Check("residuals", "noise", 7, ("it repeats",)),))
    text = markdown(certificate(plan, sound, date(2026, 1, 1), broken))
    assert text.startswith("# No privacy certificate: the audit broke the promise")
    assert "verdict broken" in text
    assert "it repeats" in text


@pytest.mark.parametrize(("trust", "mechanism", "said"), [("silo", "toeplitz", True), ("local", "batches", False)])
def test_only_where_a_user_trusts_their_silo_nothing_is_hidden_from_it(
    tmp_path: Path, trust: str, mechanism: str, said: bool
) -> None:
    page = _page(tmp_path, Plan(5, 40, 2, Privacy(1.0, 1e-5), trust=trust, mechanism=mechanism))
    assert (OWN_SILO in page) == said


def test_certificate_says_plainly_that_there_is_no_promise(tmp_path: Path) -> None:
    plan = Plan(5, 100, 2, Privacy(1.0, 1e-5), trust="silo", mechanism="tree", calibration="paper", acting="eager")
    page = _page(tmp_path, plan)
    assert page.startswith("# No privacy certificate")
    assert "No privacy guarantee" in page


def test_a_plan_without_a_budget_has_a_page_that_says_so(tmp_path: Path) -> None:
    page = _page(tmp_path, Plan(5, 40, 2, trust="none"))
    assert page.startswith("# No privacy certificate")
    assert "> No privacy guarantee: every silo's sums are sent in the clear." in page
    assert "| Budget | none |" in page
    assert "Nobody: the plan has no budget" in page
    assert "not covered" not in page  # there is no promise whose limits could be listed


def test_certificate_of_a_schedule_that_the_data_decide(tmp_path: Path) -> None:
    plan = Plan(5, 40, 2, Privacy(1.0, 1e-5), trust="silo", mechanism="tree", schedule=adaptive(9.0))
    assert "the data decide when silos synchronise" in _page(tmp_path, plan)


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (5_000.0, "at most e^5000 times as likely"),
        (5_000.0, "hides next to nothing"),
        (8.0, "at most 2,981 times as likely"),
        (1.0, "at most 2.72 times as likely"),
        (1.0, "they are right at most 73.2% of the time"),
        (1e-4, "at most 1 + 0.00011 times as likely"),
    ],
)
def test_the_promise_can_be_read_whatever_epsilon(epsilon: float, said: str) -> None:
    plan = Plan(3, 20, 2, Privacy(epsilon, 1e-5), trust="silo", schedule=every(5))
    assert said in promise_in_words(plan)


def test_a_certificate_says_what_the_audited_plan_has_less_of(tmp_path: Path) -> None:
    plan = Plan(silos=20, rounds=500, dim=4, privacy=Privacy(1.0, 1e-5), colluding=3, cohort=15)
    page = _page(tmp_path, plan)
    assert "To run it many times, the plan was made smaller: silos 20 to 5, silos in the smallest sync 15 to 4" in page


def _page(folder: Path, plan: Plan) -> str:
    file = folder / "plan.json"
    file.write_text(json.dumps(plan.as_dict()))
    return run("certificate", file, "--out", folder, "--trials", 300, "--workers", 1).stdout


def _toml(data: dict[str, Any]) -> str:
    plain = {name: value for name, value in data.items() if not isinstance(value, dict) and value is not None}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    for name, table in data.items():
        if isinstance(table, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines)
