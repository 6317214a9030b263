"""What is slow to load is loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("fedbandit", ("numba", "polars", "matplotlib")),
        ("fedbandit.plan", ("numba", "polars", "matplotlib")),
        ("fedbandit.simulator.runner", ("matplotlib", "sklearn", "ray")),
    ],
)
def test_importing_does_not_load(module: str, slow: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*(name for name in {slow!r} if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "\n"
