"""Every exception that a caller can cause, as a status and the fields it is about."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from fedbandit.federation.decisions import UnknownDecision
from fedbandit.federation.http.group import StoreUnavailable
from fedbandit.federation.http.guard import BodyTooLarge
from fedbandit.federation.silo import RewardConflict, TermEnded

SHOWN = 20  # problems of one request that are listed


class FieldError(ValueError):
    """A value that is wrong, with the name of its field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


# In this order: the first that fits answers.
_KINDS: tuple[tuple[type[Exception], int, str | None], ...] = (
    (UnknownDecision, 404, "decision"),
    (RewardConflict, 409, "reward"),
    (TermEnded, 410, "decision"),
    (BodyTooLarge, 413, "body"),
    (LookupError, 422, "action_set"),
    (ValueError, 422, None),
    (StoreUnavailable, 503, "store"),
)
CAUGHT = (LookupError, ValueError, StoreUnavailable, BodyTooLarge)


def refusal(error: Exception) -> tuple[int, list[dict[str, str]]]:
    """Status and problems of an exception in `CAUGHT`."""
    if isinstance(error, ValidationError):
        return 422, [_found(one) for one in error.errors(include_url=False, include_input=False)[:SHOWN]]
    status, field = next((status, field) for kind, status, field in _KINDS if isinstance(error, kind))
    if isinstance(error, FieldError):
        field = error.field
    message = str(error)
    # The library's own messages begin with the name of the argument.
    return status, [{"field": field or message.split(" ", 1)[0], "message": message}]


def as_json(error: Exception) -> tuple[int, bytes]:
    """The same as a status and a body."""
    status, problems = refusal(error)
    return status, json.dumps({"errors": problems}).encode()


def _found(one: Any) -> dict[str, str]:
    return {"field": ".".join(str(part) for part in one["loc"]) or "body", "message": one["msg"]}
