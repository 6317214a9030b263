"""`fedbandit attack`."""

from __future__ import annotations

import json

from tests.cli.officer.running import run


def test_attacks_are_listed_and_run() -> None:
    listed = json.loads(run("attack", "--json").stdout)["attacks"]
    assert len(listed) == 9
    data = json.loads(run("attack", "redraw", "--trials", 400, "--json").stdout)
    assert data["exposed"] > 0.9 > data["defended"]
    assert "Defence" in run("attack", "low-bits", "--trials", 100).stdout
    assert run("attack").exit_code == 0
