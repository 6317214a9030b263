"""Schemas and records as odd as they come, for property tests."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fedbandit.problem import Category, Field, Hashed, Number, Projection, Schema

NAMES = ("age", "weight", "Größe", "x y", "0")
FEATURES = ("dose", "kind", "price")
finite = st.floats(allow_nan=False, allow_infinity=False)

odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=20),
    st.text(st.characters(), max_size=5),
    st.sampled_from(["\ud800", "nan", "1e999", "yes", "a" * 500, b"bytes", 10**5000, -(10**5000), float("nan"), 1j]),
    st.sampled_from(
        [np.float32(0.3), np.int8(3), np.bool_(True), np.str_("yes"), np.datetime64("NaT"), np.array([1.0])]
    ),
    st.just(datetime.date(2026, 1, 1)),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def fields(draw: st.DrawFn) -> Field:
    kind = draw(st.sampled_from(["number", "category", "hashed"]))
    missing = draw(st.booleans())
    if kind == "number":
        low = draw(st.floats(-1e300, 1e300))
        high = draw(st.floats(low, 1e300, exclude_min=True) if low < 1e300 else st.just(1.1e300))
        return Number(low, high, draw(st.sampled_from([0, 0, 2, 5])), missing)
    if kind == "category":
        levels = draw(st.lists(st.sampled_from(["yes", "no", "3", "true", ""]), unique=True, min_size=1))
        return Category(levels, draw(st.booleans()), missing)
    return Hashed(draw(st.integers(1, 9)), missing)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    context = draw(st.dictionaries(st.sampled_from(NAMES), fields(), max_size=4))
    features = draw(st.dictionaries(st.sampled_from(FEATURES), fields(), max_size=3))
    actions = tuple(draw(st.lists(st.sampled_from(["A", "B", "C"]), unique=True)))
    of_action = [*features, *(["action"] if actions else [])]
    pairs = [(one, other) for one in context for other in of_action]
    interactions = draw(st.none() | st.lists(st.sampled_from(pairs), unique=True)) if pairs else None
    baseline = draw(st.lists(st.sampled_from(sorted(context)), unique=True)) if context else []
    intercept = True if not (actions or features or baseline) else draw(st.booleans())
    plain = Schema(context, features, actions, interactions, baseline, intercept)
    weighted = {block.name: draw(st.sampled_from([0.01, 1.0, 50.0])) for block in plain.blocks if draw(st.booleans())}
    projection = (
        Projection(draw(st.integers(1, plain.width - 1)), 3) if plain.width > 1 and draw(st.booleans()) else None
    )
    return Schema(context, features, actions, interactions, baseline, intercept, weighted, projection)


def records(names: tuple[str, ...], values: st.SearchStrategy[Any] = odd_values) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=3), values, max_size=8)
