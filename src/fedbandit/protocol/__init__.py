"""R, S and A: one file for each trust model, each a module with a protocol class and ``build(request) -> Built``.

A new trust model is a new file here; its name, with dashes, is the name a plan knows it by.
"""

from __future__ import annotations

import importlib
import pkgutil

from fedbandit import _validate
from fedbandit.protocol.guarantee import Built, Request

_SHARED = {"base", "calibration", "encoder", "guarantee", "mechanisms"}


def trusts() -> tuple[str, ...]:
    """Every trust model there is."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules if name not in _SHARED))


def build(trust: str, request: Request) -> Built:
    """The protocol and the guarantee of this trust model."""
    _validate.one_of("trust", trust, trusts())
    built = importlib.import_module(f"{__name__}.{trust.replace('-', '_')}").build(request)
    assert isinstance(built, Built)
    return built
