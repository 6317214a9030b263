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
OTHER_CONSTANT: Outcome = "other constant"  # holds with another constant than the text says or suggests
OTHER_EXPONENT: Outcome = "other exponent"  # grows, but with another power
NARROWER_RANGE: Outcome = "narrower range"  # holds, but not everywhere that the text says
REFUTED: Outcome = "refuted"  # there is a counterexample, which a test runs


class PaperClaim(NamedTuple):
    """A sentence of the paper, what was measured, and what that says about it."""

    name: str
    paper: str
    outcome: Outcome
    measured: tuple[str, ...]
