"""What a measured claim is."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = [
    "CONFIRMED",
    "NARROWER_RANGE",
    "OTHER_CONSTANT",
    "OTHER_EXPONENT",
    "REFUTED",
    "Outcome",
    "PaperClaim",
]

Outcome = Literal["confirmed", "other constant", "other exponent", "narrower range", "refuted"]
CONFIRMED: Outcome = "confirmed"  # holds as stated
OTHER_CONSTANT: Outcome = "other constant"  # holds with a different constant from what the text says or suggests
OTHER_EXPONENT: Outcome = "other exponent"  # grows, but with a different power
NARROWER_RANGE: Outcome = "narrower range"  # holds, but not everywhere the text says it does
REFUTED: Outcome = "refuted"  # there is a counterexample, which a test runs


class PaperClaim(NamedTuple):
    """A sentence of the paper, the measurements, and their verdict on it."""

    name: str
    paper: str
    outcome: Outcome
    measured: tuple[str, ...]
