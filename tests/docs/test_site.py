"""The site: it builds without a warning, asks nothing of another host, and leaves out no page, name or command."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import fedbandit
from fedbandit.cli.examples import EXAMPLES
from fedbandit.cli.main import COMMANDS, loaded
from tests.docs.pages import DOCS, EVERYWHERE, ROOT, blocks

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


def public_modules() -> set[str]:
    """`fedbandit`, the modules that it hands out, and those that the reference names as a whole."""
    handed_out = {name for name in fedbandit.__all__ if inspect.ismodule(getattr(fedbandit, name))}
    named = re.findall(r"\.\. public:: (\S+)\n(?!\n   \w)", REFERENCE)
    return {"fedbandit", *(getattr(fedbandit, name).__name__ for name in handed_out), *named}


def imported_by_pages() -> set[tuple[str, str]]:
    """Modules and the names that pages tell their readers to import from them."""
    code = "".join(block.text for page in EVERYWHERE for block in blocks(page) if block.kind == "python")
    found = re.findall(r"^ *from (fedbandit[\w.]*) import (.*)$", code, flags=re.MULTILINE)
    return {(module, name.split(" as ")[0].strip()) for module, names in found for name in names.split(",")}


def test_every_public_name_has_words() -> None:
    for module in map(importlib.import_module, public_modules()):
        for name in module.__all__:
            found, beside = getattr(module, name), rf"^{name}\b.*#: |^#: .*\n{name}\b"
            if inspect.isclass(found) or inspect.isroutine(found):
                assert inspect.getdoc(found), f"{module}.{name}"
            elif not inspect.ismodule(found):
                assert re.search(beside, inspect.getsource(module), flags=re.MULTILINE), f"{module}.{name}"


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


class Read(HTMLParser):
    """What a page makes a browser fetch, where its links lead, and the places in it that links can lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if value := known.get(LOADED.get(tag, "")):
            self.fetched.append(value)
        if tag == "a" and (link := known.get("href")):
            self.links.append(link)
        if place := known.get("id"):
            self.places.add(place)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Read]:
    """The pages of the site, built with warnings as errors."""
    if find_spec("sphinx") is None:
        pytest.skip("the site needs the extra 'docs': pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    script = [sys.executable, str(ROOT / "tools" / "site.py"), "--out", str(out)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert fedbandit.__version__ in (out / "index.html").read_text()
    return {page: Read(page) for page in (out / fedbandit.__version__).rglob("*.html")}


def test_the_site_asks_nothing_of_another_host(site: dict[Path, Read]) -> None:
    assert len(site) > 40
    for page, read in site.items():
        assert read.fetched
        assert [one for one in read.fetched if re.match(r"(https?:)?//", one)] == [], page
    for style in {page.parent for page in site}:
        for file in style.rglob("*.css"):
            assert not re.search(r"url\(['\"]?(https?:)?//|@import", file.read_text()), file


def followed(site: dict[Path, Read]) -> Iterator[tuple[str, bool]]:
    """Every link within the site, and whether it leads to a page, or a place in one, that is there."""
    for page, read in site.items():
        for link in read.links:
            if not re.match(r"[a-z]+:", link):
                target, _, place = unquote(link).partition("#")
                file = (page.parent / target).resolve() if target else page
                places = {"", *(site[file].places if file in site else ())}
                yield f"{page.name}: {link}", file.exists() and place in places


def test_no_link_of_the_site_is_dead(site: dict[Path, Read]) -> None:
    """Links to other hosts are not followed: nothing is fetched here."""
    links = list(followed(site))
    assert len(links) > 1000
    assert [link for link, leads in links if not leads] == []


def test_a_dead_link_would_be_found(tmp_path: Path) -> None:
    one, other = tmp_path / "one.html", tmp_path / "other.html"
    one.write_text(
        '<a href="other.html#here"></a><a href="other.html#gone"></a><a href="gone.html"></a><a href="#me" id="me">'
    )
    other.write_text('<p id="here"></p><a href="https://example.org/gone">')
    links = dict(followed({page: Read(page) for page in (one, other)}))
    assert [link for link, leads in links.items() if not leads] == ["one.html: other.html#gone", "one.html: gone.html"]
    assert len(links) == 4


def test_every_public_name_stands_in_the_generated_reference(site: dict[Path, Read]) -> None:
    (reference,) = (read for page, read in site.items() if page.match("reference/api.html"))
    names = {(module, name) for module in public_modules() for name in importlib.import_module(module).__all__}
    known = {_where(place) for place in reference.places if place.startswith("fedbandit.")}
    for module, name in names | imported_by_pages():
        found = getattr(importlib.import_module(module), name, None)
        handed_out = inspect.ismodule(found) or found is None  # a module: its own names stand there
        assert handed_out or f"{module}.{name}" in known or id(found) in known, f"{module}.{name}"


def _where(place: str) -> str | int:
    """A place of the reference by its name, or, if it is a class or a function, by what it is: it may be imported from
    more than one module."""
    module, _, name = place.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return place  # a method or a field
    return id(found) if callable(found) else place
