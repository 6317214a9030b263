"""Real data as bandits: judged documents of search queries (LETOR text) and warfarin dosing (its CSV)."""

from fedbandit.simulate.data.check import describe
from fedbandit.simulate.data.lasso import letor_table
from fedbandit.simulate.data.letor import Letor, load_letor
from fedbandit.simulate.data.patients import Patients, load_patients
from fedbandit.simulate.data.table import ActionTable
from fedbandit.simulate.data.warfarin import warfarin_table

__all__ = [
    "ActionTable",
    "Letor",
    "Patients",
    "describe",
    "letor_table",
    "load_letor",
    "load_patients",
    "warfarin_table",
]
