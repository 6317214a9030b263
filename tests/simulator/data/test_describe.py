"""What a data set holds, small ones and the real ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from fedbandit.simulator.data import describe, load_patients, warfarin_table
from fedbandit.simulator.data.lasso import GROUPS
from fedbandit.simulator.data.patients import ARMS, COLUMNS
from tests.simulator.data import cohorts, texts


def test_describe_counts_what_is_there(tmp_path: Path) -> None:
    rows = [texts.line(2, 1, [3, 4]), texts.line(0, 1, [0, 0]), texts.line(0, 5, [0, 1]), texts.line(1, 6, [6, 8])]
    path = texts.write(tmp_path / "a.txt", rows)
    assert describe(path) == {
        "kind": "letor",
        "files": [str(path)],
        "queries": 3,
        "repeated_queries": 0,
        "documents": 4,
        "features": 2,
        "labels": {0: 2, 1: 1, 2: 1},
        "documents_per_query": {"min": 1.0, "median": 1.0, "max": 2.0},
        "norms": {"all": {"min": 0.0, "median": 3.0, "max": 10.0}},
    }


@pytest.mark.shared
@texts.needs_mslr
def test_the_real_sample_is_read_as_it_is_known() -> None:
    found = describe(texts.MSLR)
    assert (found["queries"], found["documents"], found["features"]) == (182, 19_848, 136)
    assert found["labels"] == {0: 10_897, 1: 5_937, 2: 2_588, 3: 307, 4: 119}
    assert found["documents_per_query"] == {"min": 6, "median": 99.5, "max": 337}
    assert found["norms"]["all"]["max"] > 2e8
    known = json.loads((texts.MSLR / "feature_groups.json").read_text())
    assert [0, *GROUPS["title"]] == known["title_57"]
    assert [0, *GROUPS["body"]] == known["body_78"]


def test_describe_knows_the_csv_by_its_header(tmp_path: Path) -> None:
    people = [cohorts.patient(therapeutic=dose) for dose in ("10", "30", "30", "60", "NA")]
    people += [cohorts.patient(height="", race="Unknown"), dict.fromkeys(cohorts.TYPICAL, "")]
    packed = tmp_path / "w.csv.gz"
    packed.write_bytes(gzip.compress(cohorts.text(people).encode("utf-8-sig")))
    missing = dict.fromkeys(COLUMNS, 0) | {"Height (cm)": 1, "Race": 1}
    for path in (packed, cohorts.write(tmp_path / "w.txt", people)):
        assert describe(path) == {
            "kind": "warfarin",
            "files": [str(path)],
            "patients": 6,
            "with_dose": 5,
            "classes": dict(zip(ARMS, (1, 3, 1), strict=True)),
            "missing": missing,
        }


@pytest.mark.shared
@texts.needs_warfarin
def test_the_real_patients_are_read_as_they_are_known() -> None:
    found = describe(texts.WARFARIN)
    assert (found["patients"], found["with_dose"]) == (5_700, 5_528)
    assert list(found["classes"].values()) == [1_495, 3_382, 651]
    table = warfarin_table(load_patients(texts.WARFARIN))
    assert (table.sets, table.dim) == (5_528, 33)
    assert np.ptp(table.means) > 0.3
