"""An organisation's own problem: a public schema that turns records into rows of norm at most 1."""

from fedbandit.problem.fields import Category, Field, Hashed, Number
from fedbandit.problem.projection import Projection
from fedbandit.problem.public_schema import Schema

__all__ = ["Category", "Field", "Hashed", "Number", "Projection", "Schema"]
