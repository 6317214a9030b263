"""What a trust model declares about itself, so that nobody else has to know it by name.

A trust model is one file in `protocol/trusts`. It has a `Protocol` (R, S and A, how messages travel, who its
adversaries are), a function from a request to its noise and its guarantee, and one `TRUST`, a value of the class below
that ties them together. The planner, the simulator, the audit, the ledger, the certificate and the live federation only
read these.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.protocol.guarantee import Built, Calibration, DecodeAt, Request

__all__ = ["AuditSize", "Faith", "Trust", "build", "names", "trust"]

_FOLDER = f"{__package__}.trusts"  # looked up by name, because its files import this one


class Faith(IntEnum):
    """Whom a user has to trust; each level asks for all that the level before it asks for, and for more."""

    NOBODY = 0
    OWN_SILO = 1
    TWO_WHO_DO_NOT_COLLUDE = 2
    ANALYZER = 3
    EVERYBODY = 4


class AuditSize(NamedTuple):
    """How small a federation may be audited in place of a large one; None: it must be as large as the plan's."""

    honest: int | None = None  # silos that do not collude
    rounds: int | None = None
    batch: int = 1  # rounds per sync, where the horizon is cut to `rounds`
    trials: int = 50_000


@dataclass(frozen=True)
class Trust:
    """A trust model as data: everything that the rest of the library knows about it."""

    name: str
    build: Callable[[Request], Built]
    faith: Faith
    who: str  # whom users have to trust, in a sentence or two
    silo_sees: bool = True  # whether a silo is shown its users' data as they are
    separate: bool = False  # whether what an adversary sees of one silo does not depend on the others
    shares_noise: bool = False  # whether a sync is protected by the noise of all silos in it together
    whole: bool = False  # whether it is calibrated for all silos: a sync that one of them misses is skipped
    live: bool = True  # whether a live federation can run it
    endless: bool = False  # whether its promise is proven for a federation without an end
    personal: bool = False  # whether silos may have a release for themselves, for their own part of theta
    calibrations: tuple[Calibration, ...] = ("exact", "paper", "published")  # the calibrations that it has noise for
    mechanism: str | None = None  # the only mechanism it works with, if there is only one
    decodes_at: tuple[DecodeAt, ...] = ("analyzer",)
    audit: AuditSize = field(default_factory=AuditSize)


def names() -> tuple[str, ...]:
    """The names of all trust models: the files of `trusts`, with dashes."""
    folder = importlib.import_module(_FOLDER)
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(folder.__path__)))


def trust(name: str) -> Trust:
    """The trust model called `name`, as its file declares it."""
    _validate.one_of("trust", name, names())
    module = importlib.import_module(f"{_FOLDER}.{name.replace('-', '_')}")
    declared = getattr(module, "TRUST", None)
    if not isinstance(declared, Trust) or declared.name != name:
        raise ArgumentError("trust", f"{name!r} must be declared as TRUST = Trust(name={name!r}, ...) in its own file")
    return declared


def build(name: str, request: Request) -> Built:
    """The protocol, the guarantee and the costs of this trust model."""
    return trust(name).build(request)
