"""One agent that meets all users of a federation one after the other: one silo with silos times rounds of them."""

from __future__ import annotations

from typing import Any

from fedbandit.plan import Plan

__all__ = ["one_by_one"]


def one_by_one(asked: Plan, **fields: Any) -> Plan:
    """A plan with these fields for one agent, the users, dimension, budget, alpha and grid of `asked`."""
    users = asked.silos * asked.rounds
    return Plan(1, users, asked.dim, asked.privacy, alpha=asked.alpha, bits=asked.bits, **fields)
