"""README.md is run as it stands: its ten lines after its install line, its commands, its table of installs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.fresh import PROJECT, run_fresh

README = (Path(__file__).parents[1] / "README.md").read_text()
AFTER = """
assert result.regret("ours").mean < result.regret("paper").mean
"""


def test_the_ten_lines_work_as_written_after_the_install_line_above_them(tmp_path: Path) -> None:
    ((extras, code),) = re.findall(
        r"```sh\npip install '\.\[(.*?)\]'\n```\n\n<!-- .*? -->\n```python\n(.*?)```", README, flags=re.DOTALL
    )
    done = run_fresh(code + AFTER, extras.split(","), tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "(1, 1e-05)-differentially private" in done.stdout
    assert (tmp_path / "regret.svg").stat().st_size > 1000
    assert (tmp_path / "silo.db").exists()


def test_a_package_that_the_install_line_does_not_bring_is_absent(tmp_path: Path) -> None:
    done = run_fresh("import fedbandit as fb; fb.simulate", (), tmp_path)
    assert "fedbandit.simulate cannot be used yet: No module named 'numba'" in done.stderr
    assert "pip install 'fedbandit[simulate]'" in done.stderr


def test_the_picture_is_made_by_the_command_below_it() -> None:
    (command,) = re.findall(r"`(fedbandit simulate --protocols [^`]*)`", README)
    named = command.split()[3].split(",")
    caption = README[: README.index(command)].rpartition("readme.svg")[2]
    assert all(f"`{name}`" in caption for name in named)


def test_every_command_of_the_readme_exists() -> None:
    from typer.main import get_command

    from fedbandit.cli.main import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = {words.split()[0] for words in re.findall(r"`fedbandit ([a-z][^`]*)`", README)}
    assert named <= known
    targets = re.findall(r"^make (\w+) ", README, flags=re.MULTILINE)
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert targets
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_table_of_installs_names_extras_that_there_are() -> None:
    named = re.findall(r"^\| `'\.\[(\w+)\]'` \|", README, flags=re.MULTILINE)
    assert named == ["simulate", "live", "demo"]
    assert set(named) <= set(PROJECT["optional-dependencies"])
