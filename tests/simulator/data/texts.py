"""LETOR text for tests, and where the real sample lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"  # beside the clone
MSLR = DATA / "mslr"
WARFARIN = DATA / "warfarin" / "warfarin.csv.gz"
needs_mslr = pytest.mark.skipif(not MSLR.is_dir(), reason="the folder ../shared/data/mslr is not there")
needs_warfarin = pytest.mark.skipif(not WARFARIN.is_file(), reason="the folder ../shared/data/warfarin is not there")


def line(label: int, query: int, values: Sequence[object]) -> str:
    return f"{label} qid:{query} " + " ".join(f"{i}:{value}" for i, value in enumerate(values, 1))


def write(path: Path, rows: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(rows) + "\n").encode())
    return path


def judged(queries: int, features: int, seed: int = 0) -> list[str]:
    """Queries of 1 to 7 documents whose labels lean on the first two features, the second the larger."""
    rng = np.random.default_rng(seed)
    rows = []
    for query in range(queries):
        for _ in range(rng.integers(1, 8)):
            values = rng.uniform(0, 1, features)
            label = int(np.clip(round(2 * values[:2].sum() + rng.normal(0, 0.3)), 0, 4))
            values[1] *= 50
            rows.append(line(label, 10 + query, values.round(6).tolist()))
    return rows
