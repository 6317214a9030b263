"""The README is run as it stands: its ten lines of Python, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_ten_lines_work_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    namespace: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), namespace)
    assert "(1, 0.1)-differentially private" in capsys.readouterr().out
    assert (tmp_path / "regret.svg").stat().st_size > 1000
    result = namespace["result"]
    assert result.regret("ours").mean < result.regret("paper").mean  # type: ignore[attr-defined]


def test_every_command_of_the_readme_exists() -> None:
    from typer.main import get_command

    from fedbandit.cli.main import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = {words.split()[0] for words in re.findall(r"`fedbandit ([a-z][^`]*)`", README)}
    assert named <= known


def test_every_link_of_the_readme_leads_somewhere() -> None:
    root = Path(__file__).parents[1]
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (root / target).exists()] == []
