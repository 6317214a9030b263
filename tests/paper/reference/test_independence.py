"""The reference shares nothing with what it is held against."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from fedbandit.paper import reference

FILES = sorted(Path(reference.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_imports_numpy_the_standard_library_and_itself(file: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module))
    outside = {name for name in imported if not f"{name}.".startswith(f"{reference.__name__}.")}
    assert {name.split(".")[0] for name in outside} <= {"numpy", *sys.stdlib_module_names}
