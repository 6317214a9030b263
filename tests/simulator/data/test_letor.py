"""LETOR text: what is read, and what is refused and where."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedbandit.simulator.data import describe, lines, load_letor
from tests.simulator.data.texts import judged, line, write


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
        ("", "it holds no document"),
        ("# only a comment\n", "it holds no document"),
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
