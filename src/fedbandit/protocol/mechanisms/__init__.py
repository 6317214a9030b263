"""The mechanisms, one file each: the file's name is the mechanism's, its function `encoder(size)` makes the matrix."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from fedbandit import _validate
from fedbandit.protocol.encoder import Encoder

__all__ = ["encoder", "names"]


def names() -> tuple[str, ...]:
    """Every mechanism there is."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@lru_cache(maxsize=64)
def encoder(name: str, size: int) -> Encoder:
    """The mechanism `name` over `size` releases.

    >>> tree = encoder("tree", 4)
    >>> tree.coefficients.astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    >>> (tree.decoder @ tree.coefficients).astype(int).tolist()  # what the analyzer decodes: prefix sums
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    >>> round(encoder("tree", 400).worst_prefix, 2), round(encoder("toeplitz", 400).worst_prefix, 2)
    (8.49, 2.97)
    """
    _validate.one_of("mechanism", name, names())
    made: Encoder = importlib.import_module(f"{__name__}.{name}").encoder(_validate.count("syncs", size))
    return made
