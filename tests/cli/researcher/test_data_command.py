"""`fedbandit data`: what it finds in a file, and the line it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import Command, assert_refused


def test_check_describes_a_file_and_names_a_bad_line(
    fedbandit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    good = tmp_path / "good.txt"
    good.write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:0.25 2:2\n2 qid:2 1:1 2:0\n")
    found = fedbandit("data", "check", good, "--json").json
    assert (found["queries"], found["documents"], found["features"]) == (2, 3, 2)
    assert "documents" in fedbandit("data", "check", good).out
    bad = tmp_path / "bad.txt"
    bad.write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:nan 2:2\n")
    said = fedbandit("data", "check", bad)
    assert_refused(said, "bad.txt")
    assert "2" in said.err.partition("bad.txt")[2]
