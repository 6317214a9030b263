"""The plan of one agent that meets all users of a federation one after another: one silo, silos times rounds users."""

from __future__ import annotations

from typing import Any

from fedbandit.plan import Plan

__all__ = ["one_by_one"]


def one_by_one(asked: Plan, **fields: Any) -> Plan:
    """A plan for one agent with these fields, and with the users, dimension, budget, alpha and grid of `asked`."""
    users = asked.silos * asked.rounds
    return Plan(1, users, asked.dim, asked.privacy, alpha=asked.alpha, bits=asked.bits, **fields)
