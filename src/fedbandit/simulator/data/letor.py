"""Judged documents of search queries in LETOR text, the format of MSLR-WEB10K and its relatives.

One line per document, ``label qid:Q 1:v 2:v ... F:v # comment``; plain or .gz; one file or a folder of folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedbandit._arrays import Integers, Singles
from fedbandit.simulator.data import cache
from fedbandit.simulator.data.lines import Documents, joined, read

__all__ = ["Letor", "load_letor"]

Seen = dict[int, tuple[Path, Documents]]  # by query: the file that had it first, and its documents


@dataclass(frozen=True)
class Letor:
    """Judged documents, query by query: query s has the documents offsets[s]:offsets[s+1]."""

    features: Singles  # (documents, count), raw
    labels: NDArray[np.int32]  # (documents,)
    queries: Integers  # (queries,), their ids
    offsets: Integers  # (queries + 1,)
    files: tuple[str, ...]
    repeats: int  # how often a query came again, identical, in another file and was left out


def load_letor(path: Path | str) -> Letor:
    """Read a file or a folder of folds, from the cache on disk if none of its files has changed.

    A query that is in several files (the folds of MSLR share all of theirs) counts once, and must be the same in all of
    them. A malformed line raises ValueError with the file, the line and what is wrong.
    """
    files = _files(Path(path))
    place = cache.entry("letor", files)
    stored = cache.load(place)
    if stored is not None:
        names = tuple(str(name) for name in stored.pop("files"))
        return Letor(files=names, repeats=int(stored.pop("repeats")), **stored)
    data = _gather(files)
    cache.store(place, {**vars(data), "files": np.array(data.files), "repeats": np.array(data.repeats)})
    return data


def _files(path: Path) -> list[Path]:
    """The files to read: `path` itself, or train, vali and test in its Fold*, or every .txt and .gz below it."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"no such file or folder: {path}")
    parts = [f"{part}.txt{ending}" for part in ("train", "vali", "test") for ending in ("", ".gz")]
    folds = [file for fold in sorted(path.glob("Fold*")) for part in parts if (file := fold / part).is_file()]
    below = (file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith("."))
    found = folds or [file for file in below if file.suffix in (".txt", ".gz") and ".csv" not in file.suffixes]
    if not found:
        raise FileNotFoundError(f"no LETOR text (*.txt, *.gz) in or below {path}; for a CSV give the file itself")
    return found


def _gather(files: list[Path]) -> Letor:
    kept: list[Documents] = []
    seen: Seen = {}
    repeats, count = 0, None
    for file in files:
        documents = read(file, count)
        count = documents.features.shape[1]
        queries = _by_query(file, documents)
        new = [query for query in queries if _is_new(file, query, seen)]
        kept.extend(new)
        repeats += len(queries) - len(new)
    documents = joined(kept)
    starts = _starts(documents.queries)
    offsets = np.append(starts, len(documents.labels)).astype(np.int64)
    names = tuple(map(str, files))
    return Letor(documents.features, documents.labels, documents.queries[starts], offsets, names, repeats)


def _is_new(file: Path, query: Documents, seen: Seen) -> bool:
    """Whether this query was not seen before; if it was, it must be the same as before."""
    number = int(query.queries[0])
    where, first = seen.setdefault(number, (file, query))
    if first is query:
        return True
    if not (np.array_equal(first.labels, query.labels) and np.array_equal(first.features, query.features)):
        raise ValueError(
            f"{file}, line {query.lines[0]}: query {number} is not the same as query {number} in {where}; "
            "if they are different queries, load the files one at a time"
        )
    return False


def _by_query(file: Path, documents: Documents) -> list[Documents]:
    """The documents of each query, which must be next to each other in the file."""
    starts = _starts(documents.queries)
    _, first = np.unique(documents.queries[starts], return_index=True)
    again = np.setdiff1d(np.arange(len(starts)), first)
    if again.size:
        row = starts[again[0]]
        raise ValueError(
            f"{file}, line {documents.lines[row]}: query {documents.queries[row]} appears again after other "
            "queries; the documents of one query must be next to each other"
        )
    stops = [*starts[1:], len(documents.queries)]
    return [documents.part(start, stop) for start, stop in zip(starts, stops, strict=True)]


def _starts(queries: Integers) -> Integers:
    """The rows at which a query begins."""
    return np.concatenate(([0], np.flatnonzero(np.diff(queries)) + 1)).astype(np.int64)
