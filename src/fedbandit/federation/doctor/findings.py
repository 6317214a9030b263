"""What an examination finds: a check, how it came out, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from fedbandit._validate import ArgumentError

__all__ = ["FAILURE", "OK", "WARNING", "Diagnosis", "Level", "examined", "fails", "fine", "warns", "worst"]

Level = Literal["ok", "warning", "failure"]
OK, WARNING, FAILURE = 0, 1, 2  # exit codes
_CODES: dict[Level, int] = {"ok": OK, "warning": WARNING, "failure": FAILURE}


class Diagnosis(NamedTuple):
    """One line."""

    check: str
    level: Level
    says: str
    do: str = ""


def fine(check: str, says: str) -> Diagnosis:
    """All is well."""
    return Diagnosis(check, "ok", says)


def warns(check: str, says: str, do: str) -> Diagnosis:
    """It works, and will not for long, or not as it should."""
    return Diagnosis(check, "warning", says, do)


def fails(check: str, says: str, do: str) -> Diagnosis:
    """It does not work."""
    return Diagnosis(check, "failure", says, do)


def examined(check: str, look: Callable[[], Iterable[Diagnosis]], do: str) -> Iterator[Diagnosis]:
    """The findings of one look. What it raises is one: nothing that is wrong with a party ends its examination."""
    try:
        yield from look()
    except ArgumentError as error:
        yield fails(check, f"{error.field} {error.message}", do)
    except Exception as error:  # deliberately broad: whatever is on disk or at the other end
        yield fails(check, f"{type(error).__name__}: {error}", do)


def worst(findings: Iterable[Diagnosis]) -> int:
    """The exit code: 0 if all is well, 1 for warnings, 2 for failures."""
    return max((_CODES[finding.level] for finding in findings), default=OK)
