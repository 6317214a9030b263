"""What a certificate says about its plan."""

from __future__ import annotations

from datetime import date

from fedbandit import clock, every
from fedbandit.audit.certificate import certificate
from fedbandit.audit.report import audit
from fedbandit.schedule import Schedule
from tests.audit.faults import small_case, small_plan


def federation(schedule: Schedule) -> str:
    plan = small_plan(schedule=schedule)
    page = certificate(plan, audit(small_case(small_plan()), trials=50), date(2026, 1, 1))
    return next(row[1] for section in page.sections for row in section.table if row[0] == "Federation")


def test_rounds_of_a_clock_are_periods() -> None:
    assert federation(every(4)) == "3 silos, 32 rounds each, 3 features"
    assert federation(clock(60.0, 2.0)) == "3 silos, 32 periods of the clock each, 3 features"
