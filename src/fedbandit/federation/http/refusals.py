"""What a caller is told when a request is refused: a status, the field that is wrong, and a message."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from fedbandit._validate import ArgumentError
from fedbandit.federation.http.group import StoreUnavailable
from fedbandit.federation.http.schemas import Problem
from fedbandit.federation.silo.decisions.tickets import DecisionExpired, UnknownDecision
from fedbandit.federation.silo.serving import RewardConflict, TermEnded

__all__ = ["REFUSED", "Headers", "Refusal", "bad_argument", "refusal"]

Headers = Sequence[tuple[bytes, bytes]]
LONGEST = 300  # characters of a field or a message that are shown


class Refusal(Exception):
    """A request is refused. `field` names what is wrong, `headers` go with the answer."""

    def __init__(self, status: int, field: str, message: str, headers: Headers = ()) -> None:
        super().__init__(f"{status}: {field} {message}")
        self.status, self.headers = status, headers
        self.problem = Problem(field[:LONGEST], message[:LONGEST])


_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownDecision, 404, "decision"),
    (RewardConflict, 409, "reward"),
    (TermEnded, 410, "decision"),
    (DecisionExpired, 410, "decision"),
    (StoreUnavailable, 503, "store"),
)
REFUSED: tuple[type[Exception], ...] = (Refusal, ArgumentError, *(kind for kind, _, _ in _KINDS))


def refusal(error: Exception) -> Refusal:
    """The refusal that an exception among `REFUSED` means for the caller."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ArgumentError):
        return Refusal(422, error.field, error.message)
    status, field = next((status, field) for kind, status, field in _KINDS if isinstance(error, kind))
    return Refusal(status, field, str(error))


# What msgspec says: "... - at `$.actions[0][1]`", "Object contains unknown field `colour` - at `$.decisions[0]`".
_PLACE = re.compile(r"(?P<message>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_NAMED = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)


def bad_argument(error: Exception, encoding: str = "a value", *, whole: str = "body") -> ArgumentError:
    """The error that msgspec found, with the field as a dotted path, or `whole` if no field is named.

    The field is read from the text of the error, because nothing else names it; nothing else depends on that text.
    """
    if not isinstance(error, msgspec.ValidationError):
        return ArgumentError(whole, f"must be {encoding} ({error})")
    place = _PLACE.fullmatch(str(error))
    assert place is not None  # the pattern fits every text
    message, path = place["message"], place["path"] or ""
    named = _NAMED.fullmatch(message)
    parts = [*re.findall(r"[^.\[\]]+", path), *([named["name"]] if named else [])]
    return ArgumentError(".".join(parts) or whole, message)
