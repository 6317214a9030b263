"""The Open Bandit logs beside the clone: what each policy did, as decisions among 80 items in one of three places."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedbandit._arrays import Floats
from fedbandit.evaluation.decisions import Decisions

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "open_bandit"
ITEMS, PLACES = 80, 3
needs_data = pytest.mark.skipif(not FOLDER.exists(), reason="the Open Bandit logs are not beside the clone")


def read(name: str) -> pl.DataFrame:
    """Item, place (from 0), click and propensity of each decision."""
    text = io.BytesIO(gzip.decompress((FOLDER / f"{name}_all.csv.gz").read_bytes()))
    frame = pl.read_csv(text, columns=["item_id", "position", "click", "propensity_score"])
    return frame.with_columns(place=pl.col("position") - 1)


def decisions_of(frame: pl.DataFrame) -> Decisions:
    """One row per item: what place it would be shown in (an indicator of the place; rewards are modelled by it)."""
    count = len(frame)
    place = frame["place"].to_numpy()
    rows = np.repeat(np.eye(PLACES)[place] / 2, ITEMS, axis=0)
    return Decisions(
        rows,
        np.arange(count + 1) * ITEMS,
        frame["item_id"].to_numpy().astype(np.int64),
        frame["propensity_score"].to_numpy(),
        frame["click"].to_numpy().astype(float),
    )


def frequencies(frame: pl.DataFrame) -> Floats:
    """How often each item was shown in each place, (places, items): what a policy that knows nobody does on average."""
    shown = np.zeros((PLACES, ITEMS))
    np.add.at(shown, (frame["place"].to_numpy(), frame["item_id"].to_numpy()), 1)
    return np.asarray(shown / shown.sum(axis=1, keepdims=True))
