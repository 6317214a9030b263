"""What a data set holds, for people who are about to use it: `fedbandit data check PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbandit._arrays import Floats, Singles
from fedbandit.simulator.data.lasso import GROUPS, MSLR_FEATURES
from fedbandit.simulator.data.letor import load_letor
from fedbandit.simulator.data.lines import DAMAGED, open_bytes
from fedbandit.simulator.data.patients import ARMS, COLUMNS, DOSE, dose_classes, load_patients

__all__ = ["describe"]


def describe(path: Path | str) -> dict[str, Any]:
    """Counts and ranges of a LETOR file or folder, or of the warfarin CSV; `kind` says which it is."""
    path = Path(path)
    return _describe_warfarin(path) if _is_warfarin(path) else _describe_letor(path)


def _is_warfarin(path: Path) -> bool:
    """Whether a file begins like the warfarin CSV: a header that names the dose."""
    if not path.is_file():
        return False
    try:
        with open_bytes(path) as stream:
            return DOSE.encode() in stream.readline(1 << 16)
    except DAMAGED:
        return False


def _describe_letor(path: Path) -> dict[str, Any]:
    data = load_letor(path)
    labels, counts = np.unique(data.labels, return_counts=True)
    groups = GROUPS if data.features.shape[1] == MSLR_FEATURES else {}
    norms = {name: _spread(_norms(data.features[:, np.array(ids) - 1])) for name, ids in groups.items()}
    return {
        "kind": "letor",
        "files": list(data.files),
        "queries": len(data.queries),
        "repeated_queries": data.repeats,
        "documents": len(data.labels),
        "features": data.features.shape[1],
        "labels": dict(zip(labels.tolist(), counts.tolist(), strict=True)),
        "documents_per_query": _spread(np.diff(data.offsets).astype(np.float64)),
        "norms": norms or {"all": _spread(_norms(data.features))},
    }


def _describe_warfarin(path: Path) -> dict[str, Any]:
    patients = load_patients(path)
    dosed = ~np.isnan(patients.doses)
    counts = np.bincount(dose_classes(patients.doses[dosed]), minlength=len(ARMS))
    return {
        "kind": "warfarin",
        "files": [str(path)],
        "patients": len(patients.records),
        "with_dose": int(dosed.sum()),
        "classes": dict(zip(ARMS, counts.tolist(), strict=True)),
        "missing": {column: int(patients.missing(column).sum()) for column in COLUMNS},
    }


def _norms(rows: Singles) -> Floats:
    return np.asarray(np.linalg.norm(rows.astype(np.float64), axis=1))


def _spread(values: Floats) -> dict[str, float]:
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}
