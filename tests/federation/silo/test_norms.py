"""No contribution is longer than the sensitivity counts on, in exact integers."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit.bandit.statistics import contributions, upper_triangle
from fedbandit.federation.silo.releasing import _checked
from fedbandit.federation.silo.serving import Silo
from tests.federation.small import small_plan

LONGER = 1 + 9.9e-7  # accepted, as rounding of a unit vector


def squared_length(packed, dim):
    """|b|^2 + |W|_F^2 of one packed contribution, as a whole number."""
    rows, columns = upper_triangle(dim)
    bias = sum(int(n) ** 2 for n in packed[:dim])
    matrix = sum(int(n) ** 2 * (1 if r == c else 2) for n, r, c in zip(packed[dim:], rows, columns, strict=True))
    return bias + matrix


def within_the_bound(packed, dim, bits):
    """Whether |v| <= 2^bits sqrt 2 + sqrt(dim + dim^2) / 2, decided without rounding: square twice."""
    exact, rounding = 2 * 4**bits, Fraction(dim + dim**2, 4)
    rest = squared_length(packed, dim) - exact - rounding
    return rest <= 0 or rest**2 <= 4 * exact * rounding


def stored(silo):
    """The integers of everybody in the open batch, as they will enter a release."""
    x, y = _checked(silo.plan, silo.store.batch(1, silo.ticker.open_sync))
    return contributions(x, y, silo.plan.bits, silo.plan.centre)


rows = st.integers(1, 6).flatmap(
    lambda dim: st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=dim, max_size=dim).filter(
        lambda row: sum(x * x for x in row) > 1e-6
    )
)


@settings(deadline=None, max_examples=60)
@given(row=rows, scale=st.floats(1 - 1e-9, LONGER), bits=st.sampled_from([10, 20, 30]), way=st.integers(0, 2))
def test_stored_contributions_keep_the_bound(tmp_path_factory, row, scale, bits, way):
    """`decide_many` kept rows of norm 1 + 1e-6 as they came: 2^20 sqrt 2 was exceeded by more than rounding."""
    x = np.array(row)
    x = x / np.linalg.norm(x) * scale
    plan = small_plan(dim=len(row), bits=bits)
    with Silo.open(tmp_path_factory.mktemp("s") / "s.db", plan) as silo:
        if way == 0:
            decision = silo.decide(x[None])
        elif way == 1:
            (decision,) = silo.decide_many(x[None, None])
        else:
            silo.register("set", x[None])
            decision = silo.decide("set")
        silo.reward(decision.id, 1.0)
        (packed,) = stored(silo)[:1] if len(stored(silo)) else pytest.fail("nothing was stored")
        ticket = np.frombuffer(silo.store.batch(1, 0)[0][0])
    assert within_the_bound(packed, len(row), bits)
    assert np.linalg.norm(ticket) <= 1 + 4e-16


def test_the_bound_tells_long_rows_from_unit_ones():
    """One part in a million is a whole unit of the grid at 20 bits, and the bound sees it."""
    x, bits, dim = np.array([1.0, 0.0]), 26, 2
    assert within_the_bound(contributions(x, 1.0, bits), dim, bits)
    assert not within_the_bound(contributions(x * LONGER, 1.0, bits), dim, bits)
    assert isqrt(squared_length(contributions(x, 1.0, bits), dim)) == isqrt(2 * 4**bits)


def test_a_store_with_rows_beyond_the_bound_releases_nothing(tmp_path):
    with Silo.open(tmp_path / "s.db", small_plan()) as silo:
        for _ in range(5):
            silo.decide([[1.0, 0.0]])
        reward = silo.read(silo.decide([[1.0, 0.0]]).id, 1.0)
        silo.reward_many([reward._replace(features=np.array([2.0, 0.0]).tobytes())])
        with pytest.raises(ValueError, match="beyond their bounds"):
            silo.tick()
        assert silo.store.ledger() == []
