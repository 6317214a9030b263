"""The command line as a fixture."""

from __future__ import annotations

import sys

import pytest

from fedbandit.cli import main as cli
from tests.cli.harness import Command, Said


@pytest.fixture
def fedbandit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: its exit code and what it wrote."""

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["fedbandit", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return Said(int(stopped.value.code or 0), captured.out, captured.err)

    return run
