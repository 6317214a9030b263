"""The findings of an examination: each names a check, its result, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from fedbandit._validate import ArgumentError

__all__ = ["FAILURE", "OK", "WARNING", "Diagnosis", "Level", "examined", "fails", "fine", "warns", "worst"]

Level = Literal["ok", "warning", "failure"]
OK, WARNING, FAILURE = 0, 1, 2  # exit codes
_CODES: dict[Level, int] = {"ok": OK, "warning": WARNING, "failure": FAILURE}


class Diagnosis(NamedTuple):
    """One finding: a line of the doctor's output."""

    check: str
    level: Level
    says: str
    do: str = ""


def fine(check: str, says: str) -> Diagnosis:
    """A finding that all is well."""
    return Diagnosis(check, "ok", says)


def warns(check: str, says: str, do: str) -> Diagnosis:
    """A finding that something works, but not as it should or not for long."""
    return Diagnosis(check, "warning", says, do)


def fails(check: str, says: str, do: str) -> Diagnosis:
    """A finding that something does not work."""
    return Diagnosis(check, "failure", says, do)


def examined(check: str, look: Callable[[], Iterable[Diagnosis]], do: str) -> Iterator[Diagnosis]:
    """The findings of one check. An exception becomes a finding, so that no fault of a party ends its examination."""
    try:
        yield from look()
    except ArgumentError as error:
        yield fails(check, f"{error.field} {error.message}", do)
    except Exception as error:  # deliberately broad: anything may be on disk or at the other end
        yield fails(check, f"{type(error).__name__}: {error}", do)


def worst(findings: Iterable[Diagnosis]) -> int:
    """The exit code: 0 if all is well, 1 for warnings, 2 for failures."""
    return max((_CODES[finding.level] for finding in findings), default=OK)
