"""The mechanisms, one file each: a mechanism has the name of its file, and the file's `encoder(size)` makes its matrix.

A mechanism whose decoded sums can forget has a second function, `forgetting(size, forget)`, for a weight below 1. One
that can do so for ever, with fixed memory, has a third, `endless(size, forget)`, where `size` is how many rows are
looked at.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

import numpy as np

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.endless import EndlessEncoder

__all__ = ["encoder", "endless", "names"]


def names() -> tuple[str, ...]:
    """The names of all mechanisms."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@lru_cache(maxsize=64)
def encoder(name: str, size: int, forget: float = 1.0) -> Encoder:
    """The mechanism `name` over `size` releases; one sync leaves the weight `forget` to the past in the decoded sums. A
    `size` of 0 means without an end, which needs a `forget` below 1.

    >>> tree = encoder("tree", 4)
    >>> tree.coefficients.astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    >>> (tree.decoder @ tree.coefficients).astype(int).tolist()  # what the analyzer decodes: prefix sums
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    >>> round(encoder("tree", 400).worst_prefix, 2), round(encoder("toeplitz", 400).worst_prefix, 2)
    (8.49, 2.97)
    >>> [round(encoder("toeplitz", size, 0.97).worst_prefix, 2) for size in (365, 1095)]  # it stops growing
    [1.8, 1.8]
    """
    if size == 0 and forget < 1:
        return endless(name, 1, forget)
    _validate.one_of("mechanism", name, names())
    module = importlib.import_module(f"{__name__}.{name}")
    _validate.count("syncs", size)
    made: Encoder
    if forget == 1:
        made = module.encoder(size)
    elif hasattr(module, "forgetting"):
        made = module.forgetting(size, forget)
    else:
        raise ArgumentError("forget", f"must be 1 for mechanism {name!r}, got {forget:g}: it decodes plain sums")
    _check_grid(name, made, size)
    return made


@lru_cache(maxsize=64)
def endless(name: str, size: int, forget: float) -> EndlessEncoder:
    """The mechanism `name` without an end, of which `size` releases are looked at.

    >>> [round(endless("toeplitz", size, 0.97).worst_prefix, 2) for size in (30, 365)]  # that of the worst there is
    [1.8, 1.8]
    >>> endless("blt", 365, 0.97)
    Traceback (most recent call last):
    fedbandit._validate.ArgumentError: mechanism must be 'batches' or 'toeplitz' where there is no end, got 'blt'
    """
    _validate.one_of("mechanism", name, names())
    _validate.count("syncs", size)
    if not forget < 1:
        raise ArgumentError("forget", f"must be below 1 where there is no end, got {forget:g}: noise would grow")
    module = importlib.import_module(f"{__name__}.{name}")
    if not hasattr(module, "endless"):
        able = [one for one in names() if hasattr(importlib.import_module(f"{__name__}.{one}"), "endless")]
        raise ArgumentError("mechanism", f"must be {' or '.join(map(repr, able))} where there is no end, got {name!r}")
    made: EndlessEncoder = module.endless(size, forget)
    _check_grid(name, made, made.touches)
    return made


def _check_grid(name: str, made: Encoder, rows: int) -> None:
    """Refuse a mechanism whose entries are not on the grid it declares: what a silo releases would be made with other
    entries than those that its sensitivity is read off."""
    row = made.row(rows - 1) * 2.0**made.fraction_bits
    if not made.rounding_units and np.any(row != np.rint(row)):
        raise ArgumentError(
            "mechanism", f"{name!r} must have entries that are multiples of 2^-{made.fraction_bits}, its fraction_bits"
        )
