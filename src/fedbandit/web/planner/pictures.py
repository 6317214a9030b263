"""Data for pictures of a plan: its encoder's matrix, and who sees what. Mechanism and trust model declare all of it."""

from __future__ import annotations

from typing import Any

from fedbandit.plan import Plan
from fedbandit.protocol import mechanisms

__all__ = ["matrix", "sight"]

SIZE = 32  # syncs that are drawn: enough to see the pattern of a matrix


def matrix(plan: Plan) -> dict[str, Any]:
    """The matrix C for a horizon short enough to draw, with figures of the plan's own encoder."""
    size = min(SIZE, plan.encoder.size)
    small = mechanisms.encoder(plan.mechanism, size, plan.forget)
    return {
        "mechanism": plan.mechanism,
        "rows": [[round(float(value), 4) for value in small.row(sync)] for sync in range(size)],
        "syncs": plan.encoder.size,
        "column_norm": plan.encoder.column_norm,
        "touches": plan.encoder.touches,
    }


def sight(plan: Plan) -> dict[str, Any]:
    """Who gets which part of a silo's message, and against whom the promise holds."""
    protocol = plan.protocol
    parts = [
        {"reader": part.reader, "through_mixer": part.through_mixer, "blind": part.blind} for part in protocol.parts
    ]
    return {
        "trust": plan.trust,
        "who": plan.trusting.who,
        "sends": protocol.sends,
        "mixer": protocol.has_mixer,
        "parts": parts,
        "adversaries": [one.name for one in protocol.adversaries()],
        "cohort": plan.smallest_cohort,
    }
