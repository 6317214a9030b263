"""Packs of any width give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from fedbandit.simulator.kernels.scoring import ROWS, square_widths

SCRIPT = """
from fedbandit.simulator.kernels import packs
from tests.simulator.kernels.test_packs import widths
assert packs.BITS == 256
print(widths())
"""


def widths() -> str:
    """Quadratic forms of 48 actions and a matrix, in float64, as bits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 48)).astype(np.float32)
    board = np.zeros((ROWS, 48))
    square_widths(x, rng.normal(size=(1, 10, 12)), 0, False, board)
    return board.tobytes().hex()


def test_what_comes_out_does_not_depend_on_the_width_of_registers(tmp_path: Path) -> None:
    """Where registers hold eight float64 numbers, against four at a time; elsewhere both are the same."""
    narrow = {**os.environ, "NUMBA_ENABLE_AVX": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    command, root = [sys.executable, "-c", SCRIPT], Path(__file__).resolve().parents[3]
    done = subprocess.run(command, env=narrow, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == widths()
