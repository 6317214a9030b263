"""The mechanisms, one file each: the file's name is the mechanism's, its function `encoder(size)` makes the matrix.

One whose decoded sums can forget has another function, `forgetting(size, forget)`, for a weight below 1.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.protocol.encoder import Encoder

__all__ = ["encoder", "names"]


def names() -> tuple[str, ...]:
    """Every mechanism there is."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@lru_cache(maxsize=64)
def encoder(name: str, size: int, forget: float = 1.0) -> Encoder:
    """The mechanism `name` over `size` releases; one sync leaves the weight `forget` to the past in what is decoded.

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
    return made
