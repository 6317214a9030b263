"""Files that commands are given. Whatever is wrong with one is said in one line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan

__all__ = ["read_bytes", "read_plan", "read_text"]


def read_plan(path: Path) -> Plan:
    """A plan from JSON or TOML."""
    read_text(path)
    with _validate.reading("plan"):
        try:
            return Plan.load(path)
        except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ArgumentError("plan", f"must be JSON or TOML, {str(path)!r} is not: {error}") from None


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise ArgumentError("file", f"must be text, {str(path)!r} is not") from None


def read_bytes(path: Path) -> bytes:
    """All bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArgumentError("file", f"must be readable, got {str(path)!r} ({error.strerror})") from None
