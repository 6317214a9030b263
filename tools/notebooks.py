"""Makes examples/NAME/NAME.ipynb from examples/NAME/NAME.py, and runs it, so that readers see its output.

    python tools/notebooks.py [NAME ...]

The .py file is the source. A line `# %%` begins a cell of code, a line `# %% [markdown]` a cell of text.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from traitlets.config import Config

__all__ = ["EXAMPLES", "NAMES", "executed", "from_source", "path", "printed"]

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if (folder / f"{folder.name}.py").exists())
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
MARK = re.compile(r"^# %%( \[markdown\])?\n", flags=re.MULTILINE)
PATIENCE = 900  # seconds for one cell


def path(name: str, ending: str = ".ipynb") -> Path:
    return EXAMPLES / name / f"{name}{ending}"


def from_source(name: str) -> Any:
    """The notebook of an example, not yet run."""
    notebook = new_notebook(cells=list(_cells(path(name, ".py").read_text())))
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # otherwise nbformat draws a random id, and every run would change the file
    nbformat.validate(notebook)
    return notebook


def _cells(source: str) -> Iterator[Any]:
    before, *parts = MARK.split(source)
    assert not before, "a file begins with a cell"
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        if kind:
            yield new_markdown_cell(re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE))
        else:
            yield new_code_cell(text.strip())


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook after a run from top to bottom in this folder; a cell that fails raises `CellExecutionError`."""
    with tempfile.TemporaryDirectory() as spare:  # for Unix sockets: otherwise a kernel would listen on TCP ports
        sockets = {"transport": "ipc", "ip": f"{spare}/kernel", "connection_file": f"{spare}/kernel.json"}
        where, config = {"metadata": {"path": str(folder)}}, Config(KernelManager=sockets)
        client = NotebookClient(notebook, timeout=PATIENCE, resources=where, config=config)
        client.execute(env={**os.environ, "IPYTHONDIR": spare})
    for cell in notebook.cells:
        cell.metadata = {}  # drops the time of the run
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return notebook


def printed(notebook: Any) -> str:
    """What all cells of a notebook print."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("names", nargs="*", metavar="NAME", help="an example; by default all of them")
    for name in options.parse_args().names or NAMES:
        nbformat.write(executed(from_source(name), path(name).parent), path(name))
        print(path(name))


if __name__ == "__main__":
    main()
