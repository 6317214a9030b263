"""What a command said, and how a refusal looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

SMALL = ["--silos", "3", "--rounds", "20", "--dim", "3", "--arms", "5", "--runs", "2"]


class Said(NamedTuple):
    """The exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


def assert_refused(said: Said, message: str) -> None:
    """One line on standard error and exit code 2, nothing on standard output."""
    assert said.code == 2
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert message in said.err
    assert "Traceback" not in said.err
