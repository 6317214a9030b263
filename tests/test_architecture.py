"""What docs/architecture.md says of the folders is true, and stays true."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedbandit.protocol import trust

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedbandit"
MODULES = sorted(SOURCE.rglob("*.py"))
PLUG_INS = {"audit/attacks", "baselines", "cli/engineer", "cli/officer", "cli/researcher", "paper/reference"}
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_module_of_the_walks_exists() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`", PAGE)
    assert len(named) > 25
    roots = (SOURCE, SOURCE / "federation")
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_every_function_of_the_walks_exists() -> None:
    """Each hop names a function that its module defines."""
    hops = re.findall(r"^\| \d+ \| `([a-z_/]+\.py)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(hops) == len(re.findall(r"^\| \d+ \|", PAGE, re.MULTILINE)) > 40
    for name, function in hops:
        module = next(root / name for root in (SOURCE, SOURCE / "federation") if (root / name).exists())
        nodes = ast.walk(ast.parse(module.read_text()))
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function in defined, f"{name} has no {function}"


@pytest.mark.parametrize("folder", [SOURCE, SOURCE / "federation"], ids=lambda path: path.name)
def test_the_page_names_every_room_and_module(folder: Path) -> None:
    rooms = {f"{path.parent.name}/" for path in folder.glob("*/*.py")}
    modules = {path.name for path in folder.glob("*.py") if not path.name.startswith("_")}
    assert {name for name in rooms | modules if name not in PAGE} == set()


def test_no_folder_is_crowded() -> None:
    crowded = Counter(module.parent for module in MODULES if module.stem != "__main__")
    assert {folder: count for folder, count in crowded.items() if count > 14} == {}


def test_every_room_has_its_tests() -> None:
    """`tests` has the folders of the source, and beside them the themes that run through many rooms."""
    rooms = {module.parent.relative_to(SOURCE) for module in MODULES if module.name != "__init__.py"}
    elsewhere = {Path("federation/board")}  # through the pages that show it: tests/web/test_boards.py
    tested = {file.parent.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("test_*.py")}
    assert rooms - elsewhere - tested == set()


def test_no_two_modules_share_a_name() -> None:
    names = Counter(module.stem for module in MODULES if module.stem not in ("__init__", "__main__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_share_a_name() -> None:
    classes = Counter(
        node.name
        for module in MODULES
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_module_is_one_function_for_one_other_module() -> None:
    """Unless it is a plug-in, found by its folder, or imported late: then what it needs is not loaded by everybody."""
    importers: dict[Path, list[tuple[Path, bool]]] = defaultdict(list)
    for module in MODULES:
        for imported, late in _imports(ast.parse(module.read_text())):
            importers[imported].append((module, late))
    alone = {
        str(module.relative_to(SOURCE))
        for module in MODULES
        if module.name != "__init__.py"
        and module.parent.relative_to(SOURCE).as_posix() not in PLUG_INS
        and len(_functions_and_classes(module)) == 1
        and isinstance(_functions_and_classes(module)[0], ast.FunctionDef | ast.AsyncFunctionDef)
        and len({importer for importer, _ in importers[module]}) == 1
        and not all(late for _, late in importers[module])
    }
    assert alone == set()


def _imports(tree: ast.Module) -> Iterator[tuple[Path, bool]]:
    """Modules of the package that a module imports, and whether only when a function is called."""
    late = {
        inner
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                if (path := (SOURCE.parent / name.replace(".", "/")).with_suffix(".py")).exists():
                    yield path, node in late


def test_what_others_import_is_public() -> None:
    """Every name that one module takes from another is in its `__all__`."""
    public = {module: _public(ast.parse(module.read_text())) for module in MODULES if not module.stem.endswith("__")}
    taken = [
        f"{name} of {imported.relative_to(SOURCE)}, in {module.relative_to(SOURCE)}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and (imported := (SOURCE.parent / node.module.replace(".", "/")).with_suffix(".py")) in public
        for name in (alias.name for alias in node.names)
        if name not in public[imported]
    ]
    assert taken == []


def _public(tree: ast.Module) -> list[str]:
    """What a module's `__all__` lists."""
    return next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )


def _functions_and_classes(module: Path) -> list[ast.stmt]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node for node in ast.parse(module.read_text()).body if isinstance(node, kinds)]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nobody_knows_a_trust_model_by_name(module: Path) -> None:
    """No comparison with a trust model's name, no table with them for keys, outside its own file."""
    if module.parent.name == "trusts":
        return
    found = []
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Compare) and "trust" in ast.unparse(node.left):
            texts = [ast.unparse(other) for other in node.comparators]
            found += [text for text in texts if any(repr(name) in text for name in trust.names())]
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            found += [str(keys)] if {"secure-sum", "vector-sum"} <= keys else []
    assert found == []


def test_compiled_code_is_kept_only_where_there_is_a_place_for_it() -> None:
    """numba's own `cache=True` ends the import where nothing can be written: a read-only container without a home."""
    kept = [module for module in MODULES if "cache=True" in module.read_text()]
    assert len(kept) > 8
    own = "from fedbandit._jit import njit"
    assert [str(one) for one in kept if own not in (text := one.read_text()) or "numba.njit" in text] == []
