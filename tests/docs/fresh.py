"""A Python that has only some packages: as after `pip install 'fedbandit[EXTRAS]'` in a fresh environment.

Nothing is installed. Packages that this install would not have brought cannot be imported, as if they were not there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

__all__ = ["run_fresh"]

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def run_fresh(code: str, extras: Iterable[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the code in a process that has what an install with these extras brings, and no more."""
    brought = set(_closure(_asked(extras), set()))
    absent = {
        module for module, names in packages_distributions().items() if not {_normal(name) for name in names} & brought
    } - {"fedbandit"}
    program = BLOCK.format(absent=absent) + code
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=600)


def _asked(extras: Iterable[str]) -> list[str]:
    """The project's own requirements, from pyproject.toml: what is installed here may be of another day."""
    wanted = list(PROJECT["dependencies"])
    for extra in extras:
        for requirement in PROJECT["optional-dependencies"][extra]:
            own = re.fullmatch(r"fedbandit\[(.*)\]", requirement)
            wanted += _asked(own[1].split(",")) if own else [requirement]
    return wanted


def _closure(requirements: Iterable[str], seen: set[str]) -> Iterator[str]:
    for requirement in requirements:
        name = _normal(re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0])
        if name in seen or "extra ==" in requirement:
            continue
        seen.add(name)
        yield name
        try:
            yield from _closure(distribution(name).requires or (), seen)
        except PackageNotFoundError:  # for another system, or another Python
            continue


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
