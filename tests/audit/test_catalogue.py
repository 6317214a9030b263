"""Every planted fault of the catalogue is caught, and by what the catalogue says."""

from __future__ import annotations

import pytest

from fedbandit.audit.report import Report, audit
from tests.audit import faults
from tests.audit.catalogue import CATALOGUE, TESTED, Fault

SEED = 5


def evidence(report: Report) -> set[str]:
    """Which kinds of evidence speak against the claim."""
    kinds = {str(check.kind) for check in report.checks if check.failed}
    allowed = report.budget[0] if report.claim is None else report.claim.epsilon
    return kinds | ({"epsilon"} if report.epsilon_lower > allowed else set())


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_planted_fault_is_caught_by_what_the_catalogue_says(name: str) -> None:
    fault: Fault = CATALOGUE[name]
    report = audit(fault.plant(), trials=fault.trials, seed=SEED)
    assert report.verdict == "broken"
    assert fault.caught_by in evidence(report)
    assert fault.says in " | ".join(report.failed)


@pytest.mark.parametrize("name", TESTED)
def test_a_fault_that_is_not_played_fails_the_test_of_its_property(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = TESTED[name]
    fault.caught_by()
    fault.plant(monkeypatch)
    with pytest.raises(AssertionError):
        fault.caught_by()


def test_a_late_reward_that_is_counted_holds() -> None:
    assert audit(faults.late_reward(counted=True), trials=4_000, seed=SEED).verdict == "holds"
