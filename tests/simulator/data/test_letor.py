"""LETOR text: what is read, what is refused and where, the cache, and the lasso instance made of it."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedbandit.simulator.data import ActionTable, Letor, cache, describe, letor, letor_table, lines, load_letor
from fedbandit.simulator.data.bounded import bounded_model, with_constant
from fedbandit.simulator.data.lasso import GROUPS, PENALTIES

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "mslr"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/data/mslr is not there")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedbandit"


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


# ---- reading


def test_every_way_to_write_a_line_is_read(tmp_path: Path) -> None:
    text = (
        "# a comment line\n\n2 qid:7 1:3 2:-0.5 3:1e2  # docid = GX1\r\n0 qid:7\t1:.25 2:+4. 3:-1.5E-3 \n"
        "  1 qid:9 1:0 2:0 3:11089534#no space\n4 qid:3 1:1 2:2 3:3"
    )
    path = tmp_path / "a.txt"
    path.write_text(text)
    data = load_letor(path)
    expected = [[3, -0.5, 100], [0.25, 4, -0.0015], [0, 0, 11089534], [1, 2, 3]]
    np.testing.assert_array_equal(data.features, np.array(expected, dtype=np.float32))
    assert data.labels.tolist() == [2, 0, 1, 4]
    assert data.queries.tolist() == [7, 9, 3]
    assert data.offsets.tolist() == [0, 2, 3, 4]
    assert data.files == (str(path),)


def test_numbers_are_those_that_python_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=(400, 5)) * 10.0 ** rng.integers(-12, 12, (400, 5))
    formats = ["{:.6f}", "{:.17g}", "{:e}", "{:.25f}", "{:.3g}"]
    texts = [[form.format(v) for form, v in zip(formats, row, strict=True)] for row in values]
    data = load_letor(write(tmp_path / "a.txt", [line(1, 1, row) for row in texts]))
    expected = np.array([[float(t) for t in row] for row in texts]).astype(np.float32)
    np.testing.assert_array_equal(data.features, expected)


@pytest.mark.parametrize("block", [200, 4096])
def test_gz_plain_and_any_block_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    rows = judged(30, 4)
    plain = load_letor(write(tmp_path / "a.txt", rows))
    packed = tmp_path / "b.txt.gz"
    packed.write_bytes(gzip.compress("\n".join(rows).encode()))
    monkeypatch.setattr(lines, "BLOCK", block)
    again = load_letor(packed)
    for name in ("features", "labels", "queries", "offsets"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(again, name))
    broken = write(tmp_path / "c.txt", [*rows, "1 qid:99 1:0 2:0 3:0"])
    with pytest.raises(ValueError, match=rf"c\.txt, line {len(rows) + 1}: the line ends after 3 features"):
        load_letor(broken)


GOOD = line(1, 1, [1, 2, 3])
BAD_LINES = {
    "1 qid:1 1:1 2:2": "the line ends after 2 features, but the lines before have 3: truncated?",
    "1 qid:1 1:1 2:2 # 3:3": "the line ends after 2 features",
    "1 qid:1 1:1 2:2 3": "feature ids must run 1, 2, 3...: expected 3:value, got '3'",
    "1 qid:1 1:1 2:2 3:": "feature 3 must be a finite number, got '3:'",
    "1 qid:1 1:1 3:2 2:3": "expected 2:value, got '3:2'",
    "1 qid:1 0:1 1:2 2:3": "expected 1:value, got '0:1'",
    "1 qid:1 1:1 2:nan 3:3": "feature 2 must be a finite number, got '2:nan'",
    "1 qid:1 1:1 2:-inf 3:3": "feature 2 must be a finite number, got '2:-inf'",
    "1 qid:1 1:1 2:1e99 3:3": "feature 2 must be a finite number, got '2:1e99'",
    "1 qid:1 1:1 2:1.2.3 3:3": "feature 2 must be a finite number, got '2:1.2.3'",
    "1 qid:1 1:1 2:1e 3:3": "feature 2 must be a finite number, got '2:1e'",
    "1 qid:1 1:1 2:2 3:3 4:4": "the lines before have 3 features, but here the line goes on with '4:4'",
    "-1 qid:1 1:1 2:2 3:3": "the label must be a whole number >= 0, got '-1'",
    "1.5 qid:1 1:1 2:2 3:3": "the label must be a whole number >= 0, got '1.5'",
    "1 1:1 2:2 3:3": "after the label comes qid: and a whole number, got '1:1'",
    "1 qid:x 1:1 2:2 3:3": "after the label comes qid: and a whole number, got 'qid:x'",
    "1": "after the label comes qid: and a whole number, got 'the end of the line'",
}


@pytest.mark.parametrize("bad", BAD_LINES)
@pytest.mark.parametrize("last", [True, False])
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, bad: str, last: bool) -> None:
    path = write(tmp_path / "a.txt", [GOOD, "# comment", GOOD, bad] + ([] if last else [GOOD]))
    with pytest.raises(ValueError) as error:
        load_letor(path)
    assert str(error.value).startswith(f"{path}, line 4: ")
    assert BAD_LINES[bad] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "there is no document in it"),
        ("# only a comment\n", "there is no document in it"),
        ("hello world\n", "line 1: a line is 'label qid:Q 1:value 2:value ...', got 'hello world'"),
        ("# x\n1 qid:1\n", "line 2: a line is 'label qid:Q"),
        (f"{GOOD}\n{line(1, 2, [1, 2, 3])}\n{GOOD}\n", "line 3: query 1 appears again after other queries"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.txt") as error:
        load_letor(path)
    assert said in str(error.value)


def test_a_gz_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\n".join(judged(200, 10)).encode())[:-200])
    with pytest.raises(ValueError, match=r"a\.txt\.gz, in or after line \d+: damaged or cut short"):
        load_letor(path)
    path.write_bytes(b"not packed at all")
    with pytest.raises(ValueError, match="damaged or cut short"):
        describe(path)


# ---- folders


def test_queries_of_several_folds_count_once(tmp_path: Path) -> None:
    parts = {name: [r.replace("qid:1", f"qid:{i}1") for r in judged(9, 3, i)] for i, name in enumerate("abc", 1)}
    for fold, order in (("Fold1", "abc"), ("Fold2", "bca")):
        for name, part in zip(("train", "vali", "test"), order, strict=True):
            write(tmp_path / fold / f"{name}.txt", parts[part])
    write(tmp_path / "readme.txt", ["beside folds other text is not read"])
    data = load_letor(tmp_path)
    assert len(data.files) == 6
    assert len(data.queries) == len(set(data.queries.tolist())) == 27
    assert data.repeats == 27
    assert len(data.labels) == sum(map(len, parts.values()))


def test_files_below_a_folder_are_joined_and_the_same_query_must_be_the_same(tmp_path: Path) -> None:
    write(tmp_path / "one" / "a.txt", [line(1, 1, [1, 2]), line(0, 2, [3, 4])])
    other = write(tmp_path / "two" / "b.txt", [line(0, 2, [3, 4]), line(2, 3, [5, 6])])
    write(tmp_path / "patients.csv", ["not,read"])
    data = load_letor(tmp_path)
    assert (data.queries.tolist(), data.labels.tolist(), data.repeats) == ([1, 2, 3], [1, 0, 2], 1)
    write(other, [line(2, 3, [5, 6]), line(0, 2, [3, 4.5])])
    with pytest.raises(ValueError, match=r"b\.txt, line 2: query 2 is not the same as query 2 in .*a\.txt"):
        load_letor(tmp_path)
    write(other, [line(2, 3, [5, 6, 7])])
    with pytest.raises(ValueError, match=r"b\.txt, line 1: the lines before have 2 features"):
        load_letor(tmp_path)


def test_a_path_with_nothing_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        load_letor(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no LETOR text"):
        load_letor(tmp_path / "empty")


# ---- cache


def no_reading(*_: object) -> lines.Documents:
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


# ---- the lasso instance


def instance(tmp_path: Path, features: int = 6, queries: int = 80) -> Letor:
    return load_letor(write(tmp_path / "a.txt", judged(queries, features)))


@pytest.mark.parametrize("scaling", ["row", "column"])
def test_a_bounded_table_is_linear_and_keeps_the_lassos_order(tmp_path: Path, scaling: str) -> None:
    data = instance(tmp_path)
    table = letor_table(data, scaling=scaling)
    rows = table.features.astype(np.float64)
    assert table.bounded
    assert table.dim == 7
    assert np.linalg.norm(rows, axis=1).max() <= 1
    assert np.linalg.norm(table.theta) <= 1 + 1e-12
    assert 0 <= table.means.min() < table.means.max() <= 1
    np.testing.assert_allclose(rows @ table.theta, table.means, atol=1e-12)
    np.testing.assert_allclose(rows[:, 0], 2**-0.5, rtol=1e-6)
    np.testing.assert_array_equal(table.offsets, data.offsets)
    # Labels lean on the first two features, and scaling by columns leaves means linear in the raw features.
    if scaling == "column":
        assert np.corrcoef(table.means, data.features[:, 0] + data.features[:, 1] / 50)[0, 1] > 0.99


def test_the_published_table_meets_the_optimality_conditions_of_the_lasso(tmp_path: Path) -> None:
    """For min |y - X w|^2 / 2n + a |w|_1: X'(y - X w)/n is a sign(w) where w is not 0, else within +-a."""
    data = instance(tmp_path, queries=300)
    table = letor_table(data, scaling="published")
    rows = table.features.astype(np.float64)
    raw = np.column_stack([np.full(len(rows), 0.01), data.features.astype(np.float64)])
    np.testing.assert_allclose(rows, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-6, atol=1e-9)
    pull = rows.T @ (data.labels - rows @ table.theta) / len(rows)
    active = table.theta != 0
    penalty = float(np.abs(pull[active]).mean())
    assert np.abs(PENALTIES / penalty - 1).min() < 0.02
    np.testing.assert_allclose(pull[active], penalty * np.sign(table.theta[active]), rtol=0.05)
    assert np.abs(pull).max() <= penalty * 1.05
    assert not table.bounded
    np.testing.assert_allclose(table.means, rows @ table.theta)


def test_another_number_of_features_uses_all_of_them(tmp_path: Path) -> None:
    table = letor_table(instance(tmp_path, features=46), group="body")
    assert table.dim == 47
    assert "all 46 features and a constant" in table.description


def test_groups_of_mslr_have_the_papers_dimensions(tmp_path: Path) -> None:
    data = instance(tmp_path, features=136, queries=40)
    assert [letor_table(data, group=group).dim for group in ("title", "body", "all")] == [57, 78, 137]
    assert not set(GROUPS["title"]) & set(GROUPS["body"])


def test_a_document_of_zeros_is_kept(tmp_path: Path) -> None:
    rows = [*judged(40, 3), line(0, 999, [0, 0, 0])]
    table = letor_table(load_letor(write(tmp_path / "a.txt", rows)))
    np.testing.assert_allclose(table.features[-1], [2**-0.5, 0, 0, 0], rtol=1e-6)


def test_what_cannot_be_fitted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="at least 5 documents, got 2"):
        letor_table(load_letor(write(tmp_path / "few.txt", [line(1, 1, [1]), line(0, 1, [2])])))
    with pytest.raises(ValueError, match="every document has 1"):
        letor_table(load_letor(write(tmp_path / "same.txt", [line(1, 1, [i]) for i in range(9)])))
    data = instance(tmp_path)
    with pytest.raises(ValueError, match="group must be one of title, body, all; got 'url'"):
        letor_table(data, group="url")
    with pytest.raises(ValueError, match="scaling must be one of row, column, published; got 'none'"):
        letor_table(data, scaling="none")
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ImportError, match=r"pip install 'fedbandit\[data\]'"):
        letor_table(data)


def test_no_other_shift_leaves_larger_gaps() -> None:
    rng = np.random.default_rng(3)
    rest = rng.normal(size=(200, 4))
    rows = with_constant(rest / np.linalg.norm(rest, axis=1).max())
    ones = np.zeros(5)
    ones[0] = 1 / float(rows[0, 0])
    for weights in (np.array([-1.0, 2, -3, 0.5, 0]), np.array([30.0, 2, -3, 0.5, 0])):
        model = bounded_model(rows, weights, ones)
        predictions = rows.astype(np.float64) @ weights
        np.testing.assert_allclose(model.means, model.scale * (predictions + model.shift), atol=1e-12)
        np.testing.assert_allclose(model.means, rows.astype(np.float64) @ model.theta, atol=1e-12)
        for shift in np.linspace(-predictions.min(), -predictions.min() + 40, 500):
            longest = max(float(np.linalg.norm(weights + shift * ones)), predictions.max() + shift)
            assert 1 / longest <= model.scale * (1 + 1e-9)


# ---- the table itself


def table_of(**changes: object) -> ActionTable:
    features = np.array([[0.6, 0.8], [1, 0], [0, 0.5]], dtype=np.float32)
    theta = np.array([0.5, 0.5])
    fields: dict[str, object] = {
        "features": features,
        "offsets": np.array([0, 2, 3]),
        "means": features.astype(np.float64) @ theta,
        "theta": theta,
        "description": "",
    }
    return ActionTable(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"features": np.ones((3, 2), np.float32)}, "features must have rows of norm at most 1, got 1.41421"),
        ({"features": np.full((3, 2), np.nan, np.float32)}, "features must be finite"),
        ({"features": np.zeros((0, 2), np.float32)}, r"features must have shape \(rows, dim\)"),
        ({"offsets": np.array([0, 2, 2, 3])}, "no set may be empty, but set 1 is"),
        ({"offsets": np.array([0, 2])}, "offsets must run from 0 to the 3 rows, got 0..2"),
        ({"offsets": np.array([0])}, "offsets must have shape"),
        ({"means": np.array([0.7, 0.5])}, r"means must have shape \(3,\)"),
        ({"means": np.array([0.7, 0.5, 0.9])}, "means must be features @ theta"),
        ({"theta": np.array([1.5, 0.5])}, "means must be features @ theta"),
        ({"theta": np.zeros(3)}, r"theta must have shape \(2,\)"),
        ({"outcomes": np.array([0.0, 2.0, 1.0])}, r"outcomes must lie in \[0, 1\]"),
    ],
)
def test_a_table_that_breaks_its_promise_does_not_construct(changes: dict[str, object], said: str) -> None:
    assert table_of().bounded
    with pytest.raises(ValueError, match=said):
        table_of(**changes)


def test_only_a_table_that_is_not_bounded_may_leave_the_unit_interval() -> None:
    features = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    for theta, said in (
        (np.array([-0.5, 0.5]), r"means must lie in \[0, 1\]"),
        (np.array([1.0, 0.9]), "norm"),
    ):
        changes = {"features": features, "theta": theta, "means": features.astype(np.float64) @ theta}
        with pytest.raises(ValueError, match=said):
            table_of(**changes)
        assert not table_of(**changes, bounded=False).bounded


def test_sets_are_divided_equally() -> None:
    sets = 23
    features = np.full((sets, 1), 0.5, dtype=np.float32)
    table = ActionTable(features, np.arange(sets + 1), np.full(sets, 0.5), np.array([1.0]), "")
    for silos in (1, 4, 23):
        bounds = table.divided(silos)
        assert (bounds[0], bounds[-1], len(bounds)) == (0, sets, silos + 1)
        assert np.ptp(np.diff(bounds)) <= 1
    with pytest.raises(ValueError, match="silos must be at most the number of action sets, 23, got 24"):
        table.divided(24)
    with pytest.raises(ValueError, match="silos must be a whole number >= 1"):
        table.divided(0)


# ---- describe, and the real sample


def test_describe_counts_what_is_there(tmp_path: Path) -> None:
    rows = [line(2, 1, [3, 4]), line(0, 1, [0, 0]), line(0, 5, [0, 1]), line(1, 6, [6, 8])]
    path = write(tmp_path / "a.txt", rows)
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
@needs_shared
def test_the_real_sample_is_read_as_it_is_known() -> None:
    found = describe(SHARED)
    assert (found["queries"], found["documents"], found["features"]) == (182, 19_848, 136)
    assert found["labels"] == {0: 10_897, 1: 5_937, 2: 2_588, 3: 307, 4: 119}
    assert found["documents_per_query"] == {"min": 6, "median": 99.5, "max": 337}
    assert found["norms"]["all"]["max"] > 2e8
    known = json.loads((SHARED / "feature_groups.json").read_text())
    assert [0, *GROUPS["title"]] == known["title_57"]
    assert [0, *GROUPS["body"]] == known["body_78"]


@pytest.mark.shared
@needs_shared
@pytest.mark.parametrize("group, dim", [("title", 57), ("body", 78)])
def test_the_real_sample_makes_the_papers_instances(group: str, dim: int) -> None:
    data = load_letor(SHARED)
    for scaling in ("row", "column", "published"):
        table = letor_table(data, group, scaling)
        assert (table.dim, table.sets, table.largest_set) == (dim, 182, 337)
        assert np.ptp(table.means) > 0.2  # there is something to learn
        assert len(table.divided(10)) == 11
