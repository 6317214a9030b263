"""Parsed data on disk: read the second time, and replaced when the files change."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedbandit.simulator.data import cache, letor, load_letor
from fedbandit.simulator.data.lines import Documents
from tests.simulator.data.texts import judged, write


def no_reading(*_: object) -> Documents:
    raise AssertionError("parsed again")


def test_the_second_time_the_cache_is_read(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", judged(5, 3))
    first = load_letor(path)
    monkeypatch.setattr(letor, "read", no_reading)
    second = load_letor(path)
    assert vars(first).keys() == vars(second).keys()
    assert (first.files, first.repeats) == (second.files, second.repeats)
    for name in ("features", "labels", "queries", "offsets"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    [kept] = own_cache.iterdir()  # one entry, and no unfinished file beside it
    os.utime(path, ns=(0, 0))
    with pytest.raises(AssertionError, match="parsed again"):
        load_letor(path)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.parent))
    load_letor(path)
    [replaced] = own_cache.iterdir()
    assert replaced != kept


def test_an_unreadable_entry_is_parsed_again_and_replaced(tmp_path: Path, own_cache: Path) -> None:
    path = write(tmp_path / "a.txt", judged(5, 3))
    first = load_letor(path)
    [kept] = own_cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.warns(UserWarning, match="cannot be read, parsing again"):
        second = load_letor(path)
    np.testing.assert_array_equal(first.features, second.features)
    assert cache.load(kept) is not None


def test_without_a_place_for_the_cache_it_works_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = write(tmp_path / "a.txt", judged(5, 3))
    with pytest.warns(UserWarning, match="the parse is not cached"):
        assert len(load_letor(path).queries) == 5
