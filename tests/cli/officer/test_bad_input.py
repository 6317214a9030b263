"""What an officer types wrong is one line, whichever the command."""

from __future__ import annotations

import pytest

from tests.cli.officer.running import run


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "nonsense"),
        ("audit", "isolated"),
        ("audit", "silo", "--epsilon", -1),
        ("audit", "local", "--trials", 0),
        ("audit", "local", "--workers", 0),
        ("audit", "local", "--seed", -1),
        ("attack", "nonsense"),
        ("ledger", "nowhere.jsonl"),
        ("certificate", "nowhere.json"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[object, ...]) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, ValueError)
    assert "\n" not in str(result.exception)
