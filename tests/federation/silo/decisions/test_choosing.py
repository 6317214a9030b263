"""Choosing among actions: the compiled way decides as the other one, and refuses the same."""

import platform
import re
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit.bandit import linucb
from fedbandit.bandit.compiled import best_of, best_of_many, weights_of
from fedbandit.federation.silo.decisions.actions import Chooser

SLACK = 1 + 9e-7


def model(dim, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((3 * dim, dim))
    bias = generator.standard_normal(dim)
    upper = np.triu_indices(dim)
    packed = np.concatenate([bias, (rows.T @ rows)[upper]])
    return linucb.fit(packed, dim, 1.0, 0.5, 0.7).model


def unit(generator, *shape):
    rows = generator.standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def quick(dim):
    chooser = Chooser(dim)
    chooser.quicken()
    return chooser


@settings(deadline=None, max_examples=60)
@given(dim=st.integers(1, 12), arms=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_both_ways_choose_the_same(dim, arms, seed):
    generator = np.random.default_rng(seed)
    sets, fitted = unit(generator, 5, arms, dim), model(dim, seed)
    slow, fast = Chooser(dim), quick(dim)
    bounds = linucb.upper_bounds(sets, fitted)
    best = np.sort(bounds, axis=-1)[:, -2:]
    for one, two in zip(slow.many(sets, fitted), fast.many(sets, fitted), strict=True):
        if arms == 1 or (best[:, 1] - best[:, 0] > 1e-9).all():  # rounding decides between equals
            np.testing.assert_array_equal(one, two)
    for actions, top in zip(sets, best, strict=True):
        if arms == 1 or top[1] - top[0] > 1e-9:
            assert slow.one(actions, fitted, None)[0] == fast.one(actions, fitted, None)[0]
            assert fast.one(actions.tolist(), fitted, None)[0] == slow.one(actions, fitted, None)[0]


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 10, 33, 57, 100])
def test_of_equals_the_first_is_chosen(dim):
    """Also where the product is made in several blocks, and for the rows left over at the end of one."""
    fitted, row, chooser = model(dim), unit(np.random.default_rng(1), 1, dim), quick(dim)
    for arms in (*range(1, 30), 100, 131, 400):
        actions = np.repeat(row, arms, axis=0)
        assert chooser.one(actions, fitted, None)[0] == 0
        assert Chooser(dim).one(actions, fitted, None)[0] == 0


@pytest.mark.parametrize("chooser", [Chooser(2), quick(2)], ids=["at once", "compiled"])
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [2.0, np.nan, np.inf, -np.inf, 1 + 2e-6, 1e308])
@pytest.mark.parametrize("place", [0, 7, 8, 10])
def test_a_row_that_is_too_long_is_refused_wherever_it_stands(chooser, bad, place):
    actions = np.tile([0.6, 0.8], (11, 1))
    actions[place] = [bad, 0.0]
    with pytest.raises(ValueError, match="actions must"):
        chooser.one(actions, model(2), None)
    with pytest.raises(ValueError, match="contexts must"):
        chooser.many(actions[None], model(2))


@pytest.mark.parametrize("chooser", [Chooser(2), quick(2)], ids=["at once", "compiled"])
def test_what_is_chosen_lies_inside_the_unit_ball(chooser):
    actions = np.array([[0.6, 0.8]]) * SLACK
    _, row = chooser.one(actions, model(2), None)
    _, rows = chooser.many(actions[None], model(2))
    assert np.linalg.norm(row) <= 1
    assert np.linalg.norm(rows) <= 1


@pytest.mark.parametrize("actions", [
    np.ones((2, 3)), np.ones(2), np.zeros((0, 2)), [[1.0, 0.0], [1.0]], "x", [[None, 0.0]],
])  # fmt: skip
def test_what_has_another_shape_is_refused(actions):
    for chooser in (Chooser(2), quick(2)):
        with pytest.raises(ValueError, match="actions must"):
            chooser.one(actions, model(2), None)


def test_arrays_in_any_order_of_memory_are_taken():
    generator, fitted = np.random.default_rng(3), model(4)
    actions = unit(generator, 9, 4)
    wanted = Chooser(4).one(actions, fitted, None)[0]
    read_only = actions.copy()
    read_only.flags.writeable = False
    for same in (np.asfortranarray(actions), np.repeat(actions, 2, axis=1)[:, ::2], read_only, actions.tolist()):
        assert quick(4).one(same, fitted, None)[0] == wanted


def test_the_allowed_ones_only():
    fitted, actions = model(2), np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    for chooser in (Chooser(2), quick(2)):
        for one in range(3):
            assert chooser.one(actions, fitted, [one])[0] == one


def test_the_compiled_functions_say_what_the_square_may_be():
    fitted = model(2)
    numbers = (weights_of(fitted), float(fitted.radius))
    assert best_of(np.array([[1.0, 0.0]]), *numbers, 1.0) == 0
    assert best_of(np.array([[1.0, 0.0]]), *numbers, 0.99) == -1
    np.testing.assert_array_equal(best_of_many(np.array([[[1.0, 0.0]], [[2.0, 0.0]]]), *numbers, 1.0)[0], [0, -1])


@pytest.mark.parametrize("people, arms", [(60, 37), (3, 5), (1, 200), (200, 1)])
def test_people_are_kept_apart_where_blocks_of_rows_are_not(people, arms):
    """A block of rows begins and ends within a person's, and one of them is bad."""
    fitted, offered = model(57), unit(np.random.default_rng(4), people * arms, 57).reshape(people, arms, 57)
    offered[:, arms // 2] = offered[:, 0]  # the first of equals is chosen
    numbers = (weights_of(fitted), float(fitted.radius))
    wanted = [int(np.argmax(linucb.upper_bounds(actions, fitted))) for actions in offered]
    wanted = [0 if best == arms // 2 else best for best in wanted]  # rounding may tell them apart there
    chosen, rows = best_of_many(offered, *numbers, 2.0)
    np.testing.assert_array_equal(chosen, wanted)
    np.testing.assert_array_equal(rows, offered[np.arange(people), wanted])
    offered[people // 2, arms - 1, 0] = np.nan
    wanted[people // 2] = -1
    np.testing.assert_array_equal(best_of_many(offered, *numbers, 2.0)[0], wanted)


@pytest.mark.parametrize("dim", range(1, 10))
def test_columns_that_are_filled_up_change_nothing(dim):
    """Columns are multiplied four at a time, for two sums at a time."""
    fitted, offered = model(dim), unit(np.random.default_rng(dim), 30 * 11, dim).reshape(30, 11, dim)
    wanted = [int(np.argmax(linucb.upper_bounds(actions, fitted))) for actions in offered]
    chosen, rows = best_of_many(offered, weights_of(fitted), float(fitted.radius), 2.0)
    np.testing.assert_array_equal(chosen, wanted)
    np.testing.assert_array_equal(rows, offered[np.arange(30), wanted])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads the code of one kind of processor")
def test_scoring_uses_registers_that_hold_several_numbers():
    """A compiler that cannot tell that columns do not overlap multiplies number by number, in three times the time."""
    scoring: Any = best_of_many
    compiled: Any = numba.njit(scoring.py_func)
    compiled(np.zeros((1, 2, 3)), weights_of(model(3)), 1.0, 2.0)
    (code,) = compiled.inspect_asm().values()
    assert len(re.findall(r"mulpd\b", code)) >= 18  # the products by root and theta, and the squares


def test_nobody_is_decided_for():
    chosen, rows = quick(3).many(np.empty((0, 5, 3)), model(3))
    assert chosen.shape == (0,)
    assert rows.shape == (0, 3)
