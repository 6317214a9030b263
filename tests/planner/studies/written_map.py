"""Reads the map of where shuffling pays back from the file that `fedbandit paper shuffle` writes."""

from __future__ import annotations

import json
from pathlib import Path

from fedbandit.planner.studies.shuffle_map import NAME
from fedbandit.planner.studies.shuffling import Threshold


def written_map(folder: Path) -> list[Threshold]:
    return [Threshold(**one) for one in json.loads((folder / f"{NAME}.json").read_text(encoding="utf-8"))]
