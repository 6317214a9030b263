"""What a measured claim is."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["CONFIRMED", "OTHER_CONSTANTS", "REFUTED", "Outcome", "PaperClaim"]

Outcome = Literal["confirmed", "confirmed with other constants", "refuted"]
CONFIRMED: Outcome = "confirmed"
OTHER_CONSTANTS: Outcome = "confirmed with other constants"
REFUTED: Outcome = "refuted"


class PaperClaim(NamedTuple):
    """A sentence of the paper, what was measured, and what that says about it."""

    name: str
    paper: str
    outcome: Outcome
    measured: tuple[str, ...]
