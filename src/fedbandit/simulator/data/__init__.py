"""Real data as bandits: judged documents of search queries (LETOR text) and warfarin dosing (CSV)."""

from __future__ import annotations

from fedbandit.simulator.data.describe import describe
from fedbandit.simulator.data.dosing import Order, warfarin_table
from fedbandit.simulator.data.lasso import Group, Scaling, letor_table
from fedbandit.simulator.data.letor import Letor, load_letor
from fedbandit.simulator.data.patients import Patients, load_patients
from fedbandit.simulator.data.table import ActionTable

__all__ = [
    "ActionTable",
    "Group",
    "Letor",
    "Order",
    "Patients",
    "Scaling",
    "describe",
    "letor_table",
    "load_letor",
    "load_patients",
    "warfarin_table",
]
