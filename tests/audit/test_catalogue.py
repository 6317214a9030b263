"""Every planted fault of the catalogue is caught, and by what the catalogue says."""

from __future__ import annotations

import pytest

from fedbandit.audit.report import Report, audit
from tests.audit.catalogue import CATALOGUE, Fault

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
