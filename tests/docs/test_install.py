"""docs/install.md is followed as it stands, in a copy of what a clone holds. It downloads, as `make` itself does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks

PAGE = DOCS / "install.md"
NEEDED = ("src", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
NEAR = 0.1  # sizes change with every version of a package


@pytest.mark.torture
def test_an_environment_is_made_and_is_as_large_as_the_page_says(tmp_path: Path) -> None:
    for name in NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (commands,) = (block.text for block in blocks(PAGE) if Path(__file__).name in block.mark)
    (extra,) = re.findall(r"'\.\[(\w+)\]'", commands)
    (size,) = re.findall(rf"^\| `'\.\[{extra}\]'` \| .* \| ([0-9,]+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{outside['PATH']}"
    done = subprocess.run(
        ["bash", "-e"],
        input=f"{commands}\nfedbandit --version\ndu -sm .venv\n",
        cwd=tmp_path,
        env={**outside, "PATH": path},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    version, measured = done.stdout.splitlines()[-2:]
    assert version.startswith("fedbandit ")
    assert int(measured.split()[0]) == pytest.approx(int(size.replace(",", "")), rel=NEAR)
