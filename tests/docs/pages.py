"""Runs a page of the documentation as its reader would: in an empty folder, block after block, from the top.

| block | what is done |
|---|---|
| ```python | run, in one namespace per page; what stands after `# ->` must be printed |
| any block whose first line is `# NAME.EXT` | written to that file, without the line |
| ```sh | line by line: `fedbandit`, `python FILE`, `mkdir`, `cp`, `cd`; what `pip install` names must be an extra |
| the same | at the top of the clone: `make --dry-run`, `python -m pytest --collect-only`, `-m tests` |
| ```bash | handed to whoever runs the page: several processes, in a shell |
| ```console | the line after `$` is run, and must print what follows; `...` stands for anything |

Other kinds of block are not run: they are pictures of things, and a page that shows a command in one is refused. A
block that is not run as it stands says so in a comment right above it, which readers of the page do not see:

| comment | what it means |
|---|---|
| `<!-- run by tests/FILE.py -->` | a test of its own takes it from the page; `tests/FILE.py::test_name` says which |
| `<!-- in make test: `A` is `B` -->` | the quick run says B instead of A; `make torture` runs it as it stands |
| `<!-- in every test: `A` is `B`; WHY -->` | it is never run as it stands |
| `<!-- in make torture: WHY -->` | the quick run leaves it out |
| `<!-- not run: WHY -->` | nothing runs it; its commands are there all the same, with these options |
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from fedbandit.cli.main import app, loaded

__all__ = [
    "DOCS",
    "EVERYWHERE",
    "NAMED",
    "ROOT",
    "Block",
    "blocks",
    "named",
    "parsed",
    "run",
    "run_page",
    "same",
    "shell_lines",
]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EVERYWHERE = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>(?:(?!-->).)*) -->\n)?^```(?P<kind>[^\s`]*)[^\n`]*\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
MARKS = ("run by ", "in make test: ", "in every test: ", "in make torture: ", "not run: ")
NAMED = re.compile(r"# ([\w./-]+\.(?:py|toml|json|csv))\n")
SHOWN = {"text", "", "{include}", "{toctree}", "{cli}", "{notebook}"}


class Block(NamedTuple):
    """A fenced block: its kind, what is in it, the comment above it, and where a reader finds it."""

    kind: str
    text: str
    mark: str
    where: str

    def is_run(self, whole: bool) -> bool:
        """Whether whoever runs the page runs it, in `make torture` (`whole`) or in `make test`."""
        return not self.mark.startswith(("run by ", "not run: ", *(() if whole else ("in make torture: ",))))

    def to_run(self, whole: bool) -> str:
        """Its text, with other words where the comment says so."""
        text = self.text
        if self.mark.startswith(("in every test: ", *(() if whole else ("in make test: ",)))):
            others = re.findall(r"`([^`]*)` is `([^`]*)`", self.mark)
            assert others, f"{self.where}: {self.mark}"
            for words, other in others:
                assert words in text, f"{self.where}: {words} does not stand there"
                text = text.replace(words, other)
        return text


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    assert not re.search(r"^ +```", text, flags=re.MULTILINE), f"{page}: an indented block would not be run"
    for found in FENCE.finditer(text):
        place = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
        where = f"{place}:{text[: found.start('kind')].count(chr(10)) + 1}"
        mark = " ".join((found["mark"] or "").split())
        known = mark.startswith(MARKS) or (not mark and not found["mark"])
        assert known, f"{where}: no comment begins as {mark!r} does"
        yield Block(found["kind"], found["text"], mark, where)


def run_page(page: Path, folder: Path, other: Mapping[str, str] | None = None, whole: bool = False) -> str:
    """Everything that the page shows, in this folder, with some words in the place of others; `whole`: as `make
    torture` runs it. What stands in blocks of kind bash is returned: one script, for after the rest."""
    namespace: dict[str, object] = {"__name__": "page"}
    before, script = Path.cwd(), []
    os.chdir(folder)
    try:
        for block in blocks(page):
            if not block.is_run(whole):
                continue
            text = block.to_run(whole)
            for words, others in (other or {}).items():
                text = text.replace(words, others)
            if block.kind == "bash":
                script.append(text)
            else:
                _run(block._replace(text=text), namespace)
    finally:
        os.chdir(before)
    return "".join(script)


def _run(block: Block, namespace: dict[str, object]) -> None:
    if named := NAMED.match(block.text):
        Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(named[1]).write_text(block.text[named.end() :])
    elif block.kind == "python":
        _python(block, namespace)
    elif block.kind == "sh":
        for line in shell_lines(block):
            run(line, block.where)
    elif block.kind == "console":
        _console(block)
    else:
        assert block.kind in SHOWN, f"{block.where}: a block of kind {block.kind!r} is not run"
        assert not re.search(r"^\$ |^fedbandit ", block.text, flags=re.MULTILINE), f"{block.where}: commands are run"


def shell_lines(block: Block) -> list[str]:
    """One command each, without what they print."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if block.kind != "console" or line.startswith("$ ")]


def _python(block: Block, namespace: dict[str, object]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.text, block.where, "exec"), namespace)
    for shown in re.findall(r"# -> (.*)$", block.text, flags=re.MULTILINE):
        assert shown in printed.getvalue().splitlines(), f"{block.where}: {shown}\nprinted:\n{printed.getvalue()}"


def _console(block: Block) -> None:
    parts = re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)
    assert not parts[0], f"{block.where}: begins without a command"
    for part in parts[1:]:
        command, _, shown = part.partition("\n")
        printed = run(command, block.where)
        assert same(printed, shown), f"{block.where}: {command}\nprinted:\n{printed}\nshown:\n{shown}"


def same(printed: str, shown: str) -> bool:
    """Whether it is what a page shows, but for spaces and for what it leaves out as `...`."""
    pieces = [re.escape(" ".join(piece.split())) for piece in shown.split("...")]
    return re.fullmatch(".*?".join(pieces).strip(), " ".join(printed.split()), flags=re.DOTALL) is not None


def _expanded(line: str) -> list[str]:
    """The words of a line as a shell makes them: with what stands in $(...) put in, and the files that * means."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def run(line: str, where: str = "") -> str:
    """What a line prints; it must succeed."""
    words = _expanded(line) if "$(" in line or "*" in line else shlex.split(line, comments=True)
    if not words:
        return ""
    name, *rest = words
    if name == "fedbandit":
        result = CliRunner().invoke(app, rest)
        assert result.exit_code == 0, (where, line, result.exception, result.output)
        return result.output  # both streams, as a screen shows them
    if name == "make" or words[:2] == ["python", "-m"]:
        return _at_the_top(words, f"{where}: {line}")
    if name == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            runpy.run_path(rest[0], run_name="__main__")
        return printed.getvalue()
    if name == "pip":
        extras = re.findall(r"\[(.*?)\]", line)
        assert all(extra in EXTRAS for group in extras for extra in group.split(",")), (where, line)
    elif name == "mkdir":
        for folder in rest:
            Path(folder).mkdir()
    elif name == "cp":
        for file in rest[:-1]:
            shutil.copy(file, rest[-1])
    elif name == "cd":
        os.chdir(rest[0])
    else:
        raise AssertionError(f"{where}: nobody runs {name!r} here")
    return ""


def _at_the_top(words: list[str], where: str) -> str:
    """What a line for contributors prints in the top folder of the clone. Nothing is made, no test is run."""
    if words[0] == "make":
        assert "--dry-run" in words, f"{where}: would make an environment of its own"
    else:
        words = [sys.executable, *words[1:]]
        assert words[2] != "pytest" or "--collect-only" in words, f"{where}: would run tests within a test"
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST_"))}
    done = subprocess.run(words, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (where, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def parsed(line: str) -> None:
    """Refuse a line of `fedbandit` whose command, options or number of arguments are not those there are."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["fedbandit"] and words[1:] and not words[1].startswith("-"):
        command, rest = _command(words[1:])
        command.make_context("fedbandit", rest)


def named(line: str) -> None:
    """Refuse a line whose command or the names of whose options are not those there are; values may be missing."""
    command, rest = _command(line.split()[1:])
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    options = {word.strip("[],.") for word in rest if word.strip("[").startswith("--")}
    assert options <= known | {"--help"}, f"{line}: {options - known}"


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and the rest of them."""
    command: Any = loaded(words[0])
    commands = getattr(command, "commands", None)
    return (commands[words[1]], words[2:]) if commands and words[1:] else (command, words[1:])
