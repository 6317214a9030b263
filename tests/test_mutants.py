"""What is known of a mutant is forgotten when its function changes, and only then."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = """
LIMIT = 3

class Twice:
    def times(self, x):
        return 2 * x

class Thrice:
    def times(self, x):
        return 2 * x

def same(x):
    return x + 1
"""
Digests = Callable[[str], dict[str, str]]  # names of the mutants of a source, by digest


@pytest.fixture
def digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digests]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    mutants = importlib.import_module("mutants")
    monkeypatch.setattr(mutants, "PACKAGE", tmp_path)
    monkeypatch.setattr("mutant_runs.PACKAGE", tmp_path)

    def of(source: str) -> dict[str, str]:
        (tmp_path / "module.py").write_text(source)
        return {mutant.digest: mutant.name for mutant in mutants.mutants(tmp_path / "module.py")}

    yield of
    for name in ("mutants", "mutant_runs"):
        sys.modules.pop(name)


def test_every_mutant_has_a_digest_of_its_own(digests: Digests) -> None:
    assert list(digests(SOURCE).values()) == [
        "module.py: LIMIT = 3 -> LIMIT = 4",
        "module.py: return 2 * x -> return 2 / x",
        "module.py: return 2 * x -> return 3 * x",
        "module.py: return 2 * x -> return 2 / x (2)",
        "module.py: return 2 * x -> return 3 * x (2)",
        "module.py: return x + 1 -> return x - 1",
        "module.py: return x + 1 -> return x + 2",
    ]


def test_a_changed_function_forgets_its_own_mutants_alone(digests: Digests) -> None:
    before = digests(SOURCE)
    after = digests("'''A docstring more.'''\n" + SOURCE.replace("return x + 1", "x = abs(x)\n    return x + 1"))
    gone = {name for digest, name in before.items() if digest not in after}
    assert gone == {"module.py: return x + 1 -> return x - 1", "module.py: return x + 1 -> return x + 2"}


def test_a_changed_constant_forgets_itself_alone(digests: Digests) -> None:
    before = digests(SOURCE)
    after = digests(SOURCE.replace("LIMIT = 3", "LIMIT = 5"))
    assert [name for digest, name in before.items() if digest not in after] == ["module.py: LIMIT = 3 -> LIMIT = 4"]


def test_rewording_a_docstring_forgets_nothing(digests: Digests) -> None:
    reworded = SOURCE.replace("def same(x):", 'def same(x):\n    """The same, and one."""')
    assert digests(reworded) == digests(SOURCE)
