"""Reads one file of LETOR text, plain or .gz, into arrays; a malformed line is refused with its number."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fedbandit._arrays import Integers, Singles
from fedbandit.simulator.data import scan

__all__ = ["DAMAGED", "Documents", "joined", "open_bytes", "read"]

BLOCK = 1 << 24  # bytes of text parsed at a time, and the longest line
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)  # what reading a broken .gz raises
_COMPLAINTS = {
    scan.BAD_LABEL: "the label must be a whole number >= 0, got {token!r}",
    scan.BAD_QUERY: "after the label comes qid: and a whole number, got {token!r}",
    scan.BAD_FEATURE: "feature ids must run 1, 2, 3...: expected {after}:value, got {token!r}",
    scan.BAD_VALUE: "feature {after} must be a finite number, got {token!r}",
    scan.TOO_FEW: "the line ends after {before} features, but the lines before have {count}: truncated?",
    scan.TOO_MANY: "the lines before have {count} features, but here the line goes on with {token!r}",
}


class Documents(NamedTuple):
    """Documents in the order of their file, each with its line number there."""

    labels: NDArray[np.int32]  # (documents,)
    queries: Integers  # (documents,), the id of the query each belongs to
    lines: Integers  # (documents,)
    features: Singles  # (documents, count)

    def part(self, start: int, stop: int) -> Documents:
        """Some consecutive documents."""
        rows = slice(start, stop)
        return Documents(self.labels[rows], self.queries[rows], self.lines[rows], self.features[rows])


def joined(parts: Sequence[Documents]) -> Documents:
    """All parts, stacked."""
    return Documents(
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.queries for part in parts]),
        np.concatenate([part.lines for part in parts]),
        np.concatenate([part.features for part in parts]),
    )


def read(file: Path, count: int | None = None) -> Documents:
    """All documents of a file, with `count` features each; by default as many as its first document has."""
    line, parts = 1, []
    for block in _blocks(file):
        if count is None:
            count = _features_of_first(file, line, block)
        documents, passed = _parse(file, line, block, count or 0)
        parts.append(documents)
        line += passed
    if not any(len(documents.labels) for documents in parts):
        raise ValueError(f"{file}: it holds no document")
    return joined([documents for documents in parts if len(documents.labels)])


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked if its name ends in .gz."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _parse(file: Path, line: int, block: bytes, count: int) -> tuple[Documents, int]:
    """The documents in a block of whole lines that starts at line `line`, and how many lines it has."""
    text = np.frombuffer(block, dtype=np.uint8)
    most = block.count(b"\n") + 1
    rows = Documents(
        np.empty(most, np.int32),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty((most, count), np.float32),
    )
    filled, passed, wrong, at = scan.scan(text, *rows)
    if wrong != scan.FINE:
        raise ValueError(f"{file}, line {line + passed}: {_complaint(block, wrong, at, count)}")
    rows.lines[:filled] += line
    return rows.part(0, filled), passed


def _complaint(block: bytes, wrong: int, at: int, count: int) -> str:
    """The error in words, with the token at byte `at` and the number of features before it on its line."""
    start = block.rfind(b"\n", 0, at) + 1
    rest = block[at : at + 40].split(b"\n")[0].split()
    before = max(len(block[start:at].split()) - 2, 0)
    token = rest[0].decode("utf-8", "replace") if rest else "the end of the line"
    return _COMPLAINTS[wrong].format(token=token, before=before, after=before + 1, count=count)


def _features_of_first(file: Path, line: int, block: bytes) -> int | None:
    """How many features the first document of a block has; None if the block holds only comments."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start)
        end = len(block) if end < 0 else end
        fields = block[start:end].split(b"#")[0].split()
        if len(fields) > 2:
            return len(fields) - 2
        if fields:
            shown = block[start : min(end, start + 40)].decode("utf-8", "replace")
            raise ValueError(f"{file}, line {line}: a line is 'label qid:Q 1:value 2:value ...', got {shown!r}")
        start, line = end + 1, line + 1
    return None


def _blocks(file: Path) -> Iterator[bytes]:
    """The file in pieces of whole lines; only the last may lack its newline."""
    lines, tail = 0, b""
    with open_bytes(file) as stream:
        while piece := _piece(file, lines, stream):
            end = piece.rfind(b"\n") + 1
            if end:
                block, tail = tail + piece[:end], piece[end:]
                lines += block.count(b"\n")
                yield block
            else:
                tail += piece
            if len(tail) > BLOCK:
                raise ValueError(f"{file}, line {lines + 1}: longer than {BLOCK} bytes, so not LETOR text")
    if tail:
        yield tail


def _piece(file: Path, lines: int, stream: BinaryIO) -> bytes:
    try:
        return stream.read(BLOCK)
    except DAMAGED as error:
        raise ValueError(f"{file}, in or after line {lines + 1}: damaged or cut short: {error}") from None
