"""Arrays that do not fit never reach compiled code."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from fedbandit.simulator import kernels as k
from fedbandit.simulator.kernels import checked
from tests.simulator.kernels.cases import FRESH, TABLES, beliefs_of, empty_tally, local_of, table_of


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("regret", np.zeros((2, 3, 6)), "between 1 and 5 shards"),
        ("sums", np.zeros((2, 3, 2, 26), dtype=np.int64), "sums must be a C-contiguous int64 array of shape"),
        ("slot", np.array([0, 1]), "slot must be below the 1 rows of points"),
        ("points", np.zeros((1, 3, 5, 40, 7)), "points must be a C-contiguous float32 array"),
    ],
)
def test_a_wrong_tally_is_refused(field: str, value: Any, message: str) -> None:
    case = FRESH["bernoulli"]
    tally = empty_tally(case, 2)._replace(**{field: value})
    with pytest.raises(ValueError, match=message):
        k.play(case.users, case.source, case.rewards, beliefs_of(case), tally)


def test_a_wrong_model_or_table_is_refused() -> None:
    case, table = FRESH["bernoulli"], TABLES["ragged"]
    beliefs = beliefs_of(case)
    lower = beliefs._replace(root=np.ascontiguousarray(beliefs.root.swapaxes(-1, -2)))
    with pytest.raises(ValueError, match="root must be upper triangular"):
        k.play(case.users, case.source, case.rewards, lower, empty_tally(case, 2))
    with pytest.raises(ValueError, match="table must be made for 5 silos and dimension 6"):
        k.play(case.users, table.source, case.rewards, beliefs, empty_tally(case, 2))
    with pytest.raises(ValueError, match="exactly one set, got up to 4"):
        k.play_fixed(table.users, table_of(table), table.rewards, local_of(table), empty_tally(table, 2))
    with pytest.raises(ValueError, match="ranges must be non-empty"):
        k.make_table(np.eye(3), [0, 1, 3], np.zeros(3), [[0, 3]])
    with pytest.raises(ValueError, match="offsets must increase from 0"):
        k.make_table(np.eye(3), [0, 3, 3], np.zeros(3), [[0, 1]])


def test_little_work_is_one_threads_and_much_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call with a limit just above and just below its work; afterwards there are as many threads as before."""
    case, threads, seen = FRESH["bernoulli"], numba.config.NUMBA_NUM_THREADS, []  # type: ignore[attr-defined]
    assert isinstance(case.source, k.Fresh)
    protocols, (runs, dim) = len(beliefs_of(case).theta), case.source.theta.shape
    users = case.users.rounds * case.users.silos * runs
    work = users * protocols * case.source.arms * dim * (dim + 1) / 2
    monkeypatch.setattr(checked, "drive", lambda *arguments: seen.append(numba.get_num_threads()))
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(threads)
        for limit in (work + 1, work):
            monkeypatch.setattr(checked, "LITTLE", limit)
            k.play(case.users, case.source, case.rewards, beliefs_of(case), empty_tally(case, 2))
        assert numba.get_num_threads() == threads
    finally:
        numba.set_num_threads(before)
    assert seen == [1, threads]
