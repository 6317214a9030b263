"""Builds the site offline into out/site/VERSION, and a page that links to every version built there.

    python tools/site.py [--out out/site]

Warnings are errors, and so are references that lead nowhere.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from fedbandit import __version__  # noqa: E402

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>fedbandit: versions</title>
<h1>fedbandit</h1>
<ul>
{items}
</ul>
</html>
"""


def build(out: Path) -> int:
    """Build the site, and return Sphinx's exit code."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    return subprocess.run(
        [*command, "-d", str(out / ".doctrees"), str(ROOT / "docs"), str(out / __version__)]
    ).returncode


def index(out: Path) -> str:
    """A page with a link to each version in the folder, the newest first."""
    versions = sorted((page.parent.name for page in out.glob("*/index.html")), key=_numbers, reverse=True)
    links = (f'<li><a href="{escape(name)}/index.html">{escape(name)}</a></li>' for name in versions)
    return PAGE.format(items="\n".join(links))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--out", type=Path, default=ROOT / "out" / "site")
    out = options.parse_args().out
    code = build(out)
    if code == 0:
        (out / "index.html").write_text(index(out))
        print(f"{out / __version__ / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
