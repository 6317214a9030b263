"""The site: it builds without a warning, asks nothing of another host, and leaves out no page, name or command."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from fnmatch import fnmatch
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fedbandit
from fedbandit.cli.examples import EXAMPLES
from fedbandit.cli.main import COMMANDS, loaded
from tests.docs.pages import DOCS, ROOT

EVERYWHERE = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
REFERENCE = (DOCS / "reference" / "api.rst").read_text()


def anchor(heading: str) -> str:
    """What a heading is called in a link, here and on GitHub."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for found in LINK.finditer(text):
        target, _, place = (found[1] or found[2]).partition("#")
        if re.match(r"https?:|mailto:", target):
            continue
        file = page if not target else (page.parent / target).resolve()
        assert file.exists(), f"{page.name}: {target}"
        assert not place or place in anchors(file), f"{page.name}: {target}#{place}"


def test_every_page_stands_in_the_index() -> None:
    index = (DOCS / "index.md").read_text().splitlines()
    left_out = {"index", "README"}
    for page in (*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name in left_out or any(fnmatch(name, line) for line in index), name


def test_every_public_name_has_words_and_a_place_in_the_reference() -> None:
    groups = re.findall(r"\.\. public:: (\S+)\n((?:\n|   .*\n)*)", REFERENCE)
    named = {(module, name) for module, names in groups for name in names.split()}
    whole = {module for module, names in groups if not names.split()}
    for name in fedbandit.__all__:
        found = getattr(fedbandit, name)
        if inspect.ismodule(found):
            assert found.__name__ in whole | {module for module, _ in named}, name
        else:
            assert ("fedbandit", name) in named, name
    named |= {(module, name) for module in whole for name in importlib.import_module(module).__all__}
    for where, name in named:
        found = getattr(importlib.import_module(where), name)
        assert inspect.ismodule(found) or not callable(found) or inspect.getdoc(found), f"{where}.{name}"


def command(words: str) -> Any:
    group, _, sub = words.partition(" ")
    found: Any = loaded(group)
    return found.commands[sub] if sub else found


WORDS = [
    words for name in COMMANDS for words in (name, *(f"{name} {sub}" for sub in getattr(loaded(name), "commands", {})))
]


@pytest.mark.parametrize("words", WORDS)
def test_every_command_shows_an_example_that_it_would_take(words: str) -> None:
    named = EXAMPLES[words].replace("\\\n", " ").split()
    assert named[0] == "fedbandit"
    depth = 2 if " ".join(named[1:3]) in WORDS else 1
    found = command(" ".join(named[1 : 1 + depth]))
    found.make_context("fedbandit", named[1 + depth :])  # an option that is not there, or a value it does not take
    assert EXAMPLES[words] in (command(words).epilog or "")


def test_no_example_is_left_over() -> None:
    assert set(EXAMPLES) == set(WORDS)


def test_the_package_diagram_is_what_the_contract_says() -> None:
    script = DOCS / "_ext" / "package_diagram.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


class Loaded(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if value := dict(attrs).get(LOADED.get(tag, "")):
            self.found.append(value)


@pytest.mark.skipif(find_spec("sphinx") is None, reason="the site needs the extra 'docs': pip install '.[docs]'")
def test_the_site_builds_without_a_warning_and_without_another_host(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "tools" / "site.py"), "--out", str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    built = tmp_path / fedbandit.__version__
    assert fedbandit.__version__ in (built / "index.html").read_text()
    assert fedbandit.__version__ in (tmp_path / "index.html").read_text()
    pages = list(built.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text())
        assert parser.found
        assert [one for one in parser.found if re.match(r"(https?:)?//", one)] == [], page
    for style in built.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text()), style
