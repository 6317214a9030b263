"""Every block of every page is run, or says beside it which test runs it, or why none does."""

from __future__ import annotations

import ast
import codeop
import re
from collections.abc import Callable
from inspect import ismodule
from pathlib import Path

import pytest

import fedbandit as fb
from tests.docs import places
from tests.docs.pages import DOCS, EVERYWHERE, NAMED, ROOT, Block, blocks, named, parsed, run_page, same, shell_lines

LIVE = DOCS / "tutorials" / "engineer.md"  # has a test of its own, with processes
HISTORY = ROOT / "CHANGELOG.md"  # shows what was
PAGES = [page for page in EVERYWHERE if page != HISTORY and any(True for _ in blocks(page))]
BLOCKS = [block for page in PAGES for block in blocks(page)]
LONGER = [page for page in PAGES if any(block.mark.startswith("in make t") for block in blocks(page))]
COMMANDS = ("sh", "bash", "console")

# What a page takes for granted: the folder that its reader already has.
BEFORE: dict[str, Callable[[Path], None]] = {
    "audit.md": places.plan_and_parties,
    "frontier.md": places.data_sets,
    "seeing.md": places.log_and_table,
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def at(block: Block) -> str:
    return block.where


@pytest.mark.parametrize("page", [page for page in PAGES if page != LIVE], ids=name)
def test_the_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    BEFORE.get(page.name, lambda folder: None)(tmp_path)
    assert run_page(page, tmp_path) == ""


@pytest.mark.torture
@pytest.mark.parametrize("page", LONGER, ids=name)
def test_the_page_runs_as_it_stands_however_long_it_takes(page: Path, tmp_path: Path) -> None:
    BEFORE.get(page.name, lambda folder: None)(tmp_path)
    assert run_page(page, tmp_path, whole=True) == ""


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark.startswith("run by ")], ids=at)
def test_the_test_that_a_block_names_is_there_and_reads_the_page(block: Block) -> None:
    path, _, test = block.mark.removeprefix("run by ").split(";")[0].strip().partition("::")
    text = (ROOT / path).read_text()
    assert Path(block.where.partition(":")[0]).name in text, f"{path} does not name the page"
    functions = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert not test or test in functions


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark.startswith("not run: ")], ids=at)
def test_a_block_that_is_not_run_says_why_and_names_tests_that_there_are(block: Block) -> None:
    assert len(block.mark.split()) > 4, "a reason is a sentence"
    for path in re.findall(r"tests/[\w/]+\.py", block.mark):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind in COMMANDS], ids=at)
def test_every_command_is_one_that_there_is(block: Block) -> None:
    for line in shell_lines(block):
        parsed(re.sub(r" (2?>|&|\|\|)( .*|$)", "", re.sub(r"\$\(.*\)", "1", line)))


def test_every_command_within_a_sentence_is_one_that_there_is() -> None:
    """By its name and the names of its options: arguments are left out there."""
    for page in EVERYWHERE:
        if page == HISTORY:
            continue
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for line in re.findall(r"`(fedbandit [a-z][^`]*)`", text):
            named(" ".join(line.split()))


TYPED = [block for block in BLOCKS if block.kind == "python" and re.search("docs/(tutorials|how-to)/", block.where)]


@pytest.mark.parametrize("block", [block for block in TYPED if not NAMED.match(block.text)], ids=at)
def test_python_of_a_lesson_can_be_pasted_line_by_line(block: Block) -> None:
    """An interactive Python ends a loop at an empty line, and takes nothing else for its end."""
    compiler, waiting = codeop.CommandCompiler(), ""
    for line in [*block.text.splitlines(), ""]:
        waiting += f"{line}\n"
        if compiler(waiting.removesuffix("\n"), block.where, "single") is not None:
            waiting = ""
    assert not waiting


def test_docstrings_show_code_as_examples_that_are_run() -> None:
    """`--doctest-modules` runs what stands after >>>. Code in another form would be run by nobody."""
    sources = sorted((ROOT / "src").rglob("*.py"))
    shown = [
        str(file) for file in sources if re.search(r"```|^ *\.\. code|^ *Examples?:", file.read_text(), re.MULTILINE)
    ]
    assert shown == []
    assert sum(file.read_text().count(">>> ") for file in sources) > 50


@pytest.mark.parametrize("name", [name for name in fb.__all__ if not ismodule(getattr(fb, name))])
def test_every_public_name_shows_an_example_that_is_run(name: str) -> None:
    assert ">>> " in (getattr(fb, name).__doc__ or "")


def test_what_is_printed_is_held_against_what_is_shown() -> None:
    assert same("a  1\nb 2\nc 3\n", "a 1\n...\nc 3\n")
    assert not same("a 1\nb 2\nc 4\n", "a 1\n...\nc 3\n")
    assert not same("a 1\nb 2\n", "a 1\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```sh\nrm -rf everything\n```\n", "nobody runs 'rm'"),
        ("```json\n{}\n```\n", "a block of kind 'json' is not run"),
        ("```toml\nsilos = 3\n```\n", "a block of kind 'toml' is not run"),
        ("```\nfedbandit plan\n```\n", "commands are run"),
        ("<!-- somebody runs it -->\n```sh\nfedbandit plan\n```\n", "no comment begins as"),
        ("<!-- in make test: `a` is `b` -->\n```sh\nmkdir c\n```\n", "a does not stand there"),
        ("```python\nprint(2)  # -> 3\n```\n", "page.md:1: 3"),
        ("```console\n$ fedbandit --version\nfedbandit 99\n```\n", "printed:"),
    ],
)
def test_a_block_that_nothing_runs_or_that_does_not_work_is_refused(text: str, why: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=re.escape(why)):
        run_page(page, tmp_path)


def test_the_quick_run_is_shorter_and_the_long_one_is_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    short = "<!-- in make test: `long` is `short` -->\n```sh\nmkdir long\n```\n"
    page.write_text(short + "<!-- in make torture: takes minutes -->\n```sh\nmkdir minutes\n```\n")
    run_page(page, tmp_path)
    assert {one.name for one in tmp_path.iterdir() if one.is_dir()} == {"short"}
    run_page(page, tmp_path, whole=True)
    assert {one.name for one in tmp_path.iterdir() if one.is_dir()} == {"short", "long", "minutes"}
