"""Runs a page of the documentation as its reader would: in an empty folder, block after block, from the top.

| block | what is done |
|---|---|
| ```python | run, in one namespace per page |
| any block whose first line is `# NAME.EXT` | written to that file, without the line |
| ```sh | line by line: `fedbandit`, `python FILE`, `mkdir`, `cp`, `cd`; what `pip install` names must be an extra |
| ```bash | handed to whoever runs the page: several processes, in a shell |
| ```console | the line after `$` is run, and must print what follows; `...` stands for anything |

Other kinds of block are not run: they are pictures of things, and a page that shows a command in one is refused.
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
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from fedbandit.cli.main import app

__all__ = ["DOCS", "ROOT", "Block", "blocks", "run", "run_page", "same"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FENCE = re.compile(r"^```([a-z{}-]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# ([\w./-]+\.(?:py|toml|json|csv))\n")
SHOWN = {"text", "", "{include}", "{toctree}", "{cli}"}


class Block(NamedTuple):
    """A fenced block: its kind, what is in it, and where a reader finds it."""

    kind: str
    text: str
    where: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    assert not re.search(r"^ +```", text, flags=re.MULTILINE), f"{page}: an indented block would not be run"
    for found in FENCE.finditer(text):
        yield Block(found[1], found[2], f"{page.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}")


def run_page(page: Path, folder: Path, other: Mapping[str, str] | None = None) -> str:
    """Everything that the page shows, in this folder, with some words in the place of others. What stands in blocks of
    kind bash is returned: one script, for after the rest."""
    namespace: dict[str, object] = {"__name__": "page"}
    before, script = Path.cwd(), []
    os.chdir(folder)
    try:
        for block in blocks(page):
            text = block.text
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
        exec(compile(block.text, block.where, "exec"), namespace)
    elif block.kind == "sh":
        for line in block.text.replace("\\\n", " ").splitlines():
            run(line, block.where)
    elif block.kind == "console":
        _console(block)
    else:
        assert block.kind in SHOWN, f"{block.where}: a block of kind {block.kind!r} is not run"
        assert not re.search(r"^\$ |^fedbandit ", block.text, flags=re.MULTILINE), f"{block.where}: commands are run"


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
    """The words of a line as a shell makes them, with what stands in $(...) put in."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def run(line: str, where: str = "") -> str:
    """What a line prints on standard output; it must succeed."""
    words = _expanded(line) if "$(" in line else shlex.split(line, comments=True)
    if not words:
        return ""
    name, *rest = words
    if name == "fedbandit":
        result = CliRunner().invoke(app, rest)
        assert result.exit_code == 0, (where, line, result.exception, result.output)
        return result.stdout
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
