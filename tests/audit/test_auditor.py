"""Results do not depend on how runs are spread over cores, and on nothing but the seed."""

from __future__ import annotations

from fedbandit.audit.auditor import examined
from fedbandit.audit.report import audit
from tests.audit.faults import small_case, small_plan


def test_the_result_does_not_depend_on_the_number_of_workers() -> None:
    case = small_case(small_plan())
    assert audit(case, trials=2_500, seed=9) == audit(case, trials=2_500, seed=9, workers=2)


def test_another_seed_gives_another_result() -> None:
    games = small_case(small_plan()).games
    assert (
        examined(games, 1e-5, 1_000, seed=1).findings[0].hits != examined(games, 1e-5, 1_000, seed=2).findings[0].hits
    )


def test_progress_reaches_one() -> None:
    shares: list[float] = []
    audit(small_case(small_plan()), trials=3_000, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
