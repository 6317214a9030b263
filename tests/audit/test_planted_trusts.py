"""Trust models whose noise forgets something that the promise counts: the audit of a plan of theirs says so.

Each is a copy of a shipped trust model with one line changed, in a file of its own, as anybody's would be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedbandit import Plan, Privacy, clock, every
from fedbandit._validate import ArgumentError
from fedbandit.audit.cases import reduced
from fedbandit.audit.report import Report, audit
from fedbandit.protocol import trusts

SHIPPED = Path(trusts.__file__).parent
SEED = 5


class Planted(NamedTuple):
    """A trust model, and the line of it that is changed."""

    trust: str
    right: str
    wrong: str


NOISE = "noise = gaussian_noise(request, joint_silos=False)"
NOISE_OF_ONE = (
    "from dataclasses import replace; "
    "noise = gaussian_noise(replace(request, privacy=replace(request.asked, {}=1)), joint_silos=False)"
)
HONEST = "honest = request.cohort - request.colluding"
TRUSTS = {
    "forgets-visits": Planted("silo", NOISE, NOISE_OF_ONE.format("participations")),
    "forgets-silos": Planted("silo", NOISE, NOISE_OF_ONE.format("silos_per_user")),
    "forgets-the-cohort": Planted("secure-sum", HONEST, "honest = request.silos - request.colluding"),
    "counts-one-colluder": Planted("secure-sum", HONEST, "honest = request.cohort - min(1, request.colluding)"),
    "counts-five-colluders": Planted("secure-sum", HONEST, "honest = request.cohort - min(5, request.colluding)"),
    "has-no-adversary": Planted("silo", "return (SeesMessages(),)", "return ()"),
}


@pytest.fixture(autouse=True)
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, fault in TRUSTS.items():
        code = (SHIPPED / f"{fault.trust.replace('-', '_')}.py").read_text()
        assert fault.right in code
        code = code.replace(fault.right, fault.wrong).replace(f'name="{fault.trust}"', f'name="{name}"')
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(code)
    monkeypatch.setattr(trusts, "__path__", [*trusts.__path__, str(tmp_path)])
    yield
    for name in TRUSTS:
        sys.modules.pop(f"{trusts.__name__}.{name.replace('-', '_')}", None)


def audited(
    trials: int = 2_000, *, silos: int = 3, rounds: int = 10, visits: int = 1, at: int = 1, **fields: Any
) -> Report:
    """The audit of a plan that lets a user come `visits` times to each of `at` silos."""
    budget = Privacy(1.0, 1e-5, participations=visits, silos_per_user=at)
    return audit(reduced(Plan(silos, rounds, 2, budget, **fields)), trials, seed=SEED)


def audited_live(plan: Plan) -> Report:
    pytest.importorskip("opendp")
    pytest.importorskip("nats")
    from fedbandit.audit.live_game import live_reduced

    return audit(live_reduced(plan), 2)


def says(report: Report) -> str:
    return " | ".join(report.failed)


@pytest.mark.parametrize("mechanism", ["toeplitz", "batches", "tree"])
@pytest.mark.parametrize("schedule", [clock(60), clock(60, 1.5), every(5), every(2), every(1)], ids=str)
def test_all_visits_are_played_whatever_the_calendar(schedule: Any, mechanism: str) -> None:
    """On a clock in one batch; where batches are smaller than the visits, in several."""
    fields = {"visits": 3, "schedule": schedule, "mechanism": mechanism}
    report = audited(trust="forgets-visits", **fields)
    assert report.verdict == "broken"
    assert "noise of the claimed size gives an epsilon of" in says(report)
    assert audited(trust="silo", **fields).verdict == "holds"


def test_unsound_noise_on_a_clock_is_broken_by_the_runs_too() -> None:
    report = audited(20_000, trust="forgets-visits", visits=3, schedule=clock(60))
    assert report.epsilon_lower > 2.0


def test_all_silos_of_a_user_are_played() -> None:
    report = audited(trust="forgets-silos", at=3, schedule=clock(60))
    assert "noise of the claimed size gives an epsilon of 1." in says(report)


@pytest.mark.parametrize(
    ("trust", "fields"),
    [
        ("forgets-the-cohort", {"cohort": 2, "colluding": 1}),
        ("forgets-the-cohort", {"cohort": 9, "colluding": 1}),
        ("forgets-the-cohort", {"cohort": 30, "silos": 40, "colluding": 3}),
        ("counts-one-colluder", {"colluding": 8}),
        ("counts-one-colluder", {"cohort": 4, "colluding": 3}),
        ("counts-five-colluders", {"colluding": 8}),
    ],
)
def test_the_cohort_and_all_who_collude_are_counted(trust: str, fields: dict[str, Any]) -> None:
    given = {"silos": 10, "rounds": 20, "schedule": every(4), **fields}
    report = audited(trust=trust, **given)
    assert report.verdict == "broken"
    assert "noise of the claimed size gives an epsilon of" in says(report)
    sound = audited(trust="secure-sum", **given)
    assert sound.verdict == "holds", sound.failed


def test_a_small_cohort_is_played_as_it_is() -> None:
    """Two silos of ten in a sync, one of them colluding: the runs alone show what is wrong."""
    report = audited(20_000, trust="forgets-the-cohort", silos=10, cohort=2, schedule=every(5))
    assert report.epsilon_lower > 2.0


def test_the_claim_is_that_of_the_plan_itself_and_what_was_cut_is_said() -> None:
    plan = Plan(100, 10_000, 10, Privacy(1.0, 1e-5), colluding=20, cohort=90)
    report = audit(reduced(plan), 20, seed=SEED)
    assert report.claim is not None
    assert report.claim.statement == plan.guarantee.statement
    assert report.smaller_claim is not None
    assert report.smaller_claim.statement != plan.guarantee.statement
    for text in ("silos 100 to 5", "silos in the smallest sync 90 to 4", "colluding silos 20 to 2", "d 10 to 3"):
        assert text in report.cut
    assert any(check.what.endswith("in the whole plan") for check in report.checks)


def test_a_trust_model_without_an_adversary_is_refused_in_one_line() -> None:
    with pytest.raises(ArgumentError, match="must name an adversary"):
        audited(trust="has-no-adversary")


@pytest.mark.parametrize(
    "plan",
    [
        {"trust": "forgets-visits", "privacy": Privacy(1.0, 1e-5, participations=3), "schedule": clock(60)},
        {"trust": "forgets-the-cohort", "silos": 10, "cohort": 2, "visits": "public", "schedule": every(5)},
        {"trust": "counts-one-colluder", "silos": 10, "colluding": 8, "visits": "public", "schedule": every(5)},
    ],
    ids=lambda fields: fields["trust"],
)
def test_a_live_audit_says_the_same_of_the_plan_s_noise(plan: dict[str, Any]) -> None:
    """Too few runs to prove an epsilon; what the plan's own noise amounts to is computed."""
    report = audited_live(Plan(**{"silos": 3, "rounds": 10, "dim": 2, "privacy": Privacy(1.0, 1e-5), **plan}))
    assert report.live
    assert report.verdict == "broken"
    assert "noise of the claimed size gives an epsilon of" in says(report)
