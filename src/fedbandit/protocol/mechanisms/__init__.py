"""The mechanisms, one file each, which has a function ``encoder(steps) -> Encoder`` and the mechanism's name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from fedbandit import _validate
from fedbandit.protocol.encoder import Encoder


def names() -> tuple[str, ...]:
    """Every mechanism there is."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@lru_cache(maxsize=64)
def encoder(name: str, steps: int) -> Encoder:
    """The mechanism `name` over `steps` releases."""
    _validate.one_of("mechanism", name, names())
    _validate.count("steps", steps)
    module = importlib.import_module(f"{__name__}.{name}")
    made = module.encoder(steps)
    assert isinstance(made, Encoder)
    return made
