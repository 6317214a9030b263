"""Reading the files that commands are given. Every error fits on one line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.problem import Schema

__all__ = ["read_bytes", "read_fields", "read_plan", "read_schema", "read_text"]


def read_plan(path: Path) -> Plan:
    """A plan from JSON or TOML."""
    data = read_fields("plan", path)
    with _validate.reading("plan"):
        return Plan.from_dict(data)


def read_schema(path: Path) -> Schema:
    """A schema from JSON or TOML; if the file holds a plan, the plan's schema."""
    data = read_fields("schema", path)
    with _validate.reading("schema"):
        return Schema.from_dict(data["schema"] if isinstance(data.get("schema"), dict) else data)


def read_fields(what: str, path: Path) -> dict[str, Any]:
    """A table of fields from JSON or TOML."""
    text = read_text(path, what)
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(what, f"must be JSON or TOML, {str(path)!r} is not: {error}") from None
    if not isinstance(data, dict):
        raise ArgumentError(what, f"must be a table of fields, got {type(data).__name__}")
    return data


def read_text(path: Path, what: str = "file") -> str:
    """The text of a file; an error names `what` it is."""
    try:
        return read_bytes(path, what).decode()
    except UnicodeDecodeError:
        raise ArgumentError(what, f"must be text, {str(path)!r} is not") from None


def read_bytes(path: Path, what: str = "file") -> bytes:
    """All bytes of a file; an error names `what` it is."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArgumentError(what, f"must be readable, got {str(path)!r} ({error.strerror})") from None
