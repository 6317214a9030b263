"""Bodies that would become millions of lists are refused while they are still bytes."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit._validate import ArgumentError
from fedbandit.federation.http.bodies.packed import containers_among
from fedbandit.federation.http.bodies.parsing import MOST_CONTAINERS, PACKED_MEDIA, Parser, containers
from fedbandit.federation.http.schemas import DecisionBatch, DecisionRequest
from tests.memory import at_most

JSON, PACKED = b"application/json", PACKED_MEDIA.encode()
MILLIONS = 5_000_000
BOMBS: dict[str, tuple[type[msgspec.Struct], bytes, bytes]] = {
    "rows": (DecisionRequest, JSON, b'{"actions": [' + b"[]," * MILLIONS + b"[]]}"),
    "a field of the context": (DecisionRequest, JSON, b'{"context": {"a": [' + b"[]," * MILLIONS + b"[]]}}"),
    "tables": (DecisionRequest, JSON, b'{"context": {"a": [' + b"{}," * MILLIONS + b"{}]}}"),
    "decisions": (DecisionBatch, JSON, b'{"decisions": [' + b'{"actions":[]},' * 1_000_000 + b"{}]}"),
    "unknown": (DecisionRequest, JSON, b'{"x": [' + b"[]," * MILLIONS + b"[]]}"),
    "packed": (
        DecisionRequest,
        PACKED,
        b"\x81\xa7context\x81\xa1a\xdd" + struct.pack(">I", MILLIONS) + b"\x90" * MILLIONS,
    ),
    "packed tables": (
        DecisionRequest,
        PACKED,
        b"\x81\xa7context\x81\xa1a\xdd" + struct.pack(">I", MILLIONS) + b"\x80" * MILLIONS,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_nothing_is_made_of_a_bomb(name: str) -> None:
    kind, media, body = BOMBS[name]
    containers(body, packed=media == PACKED)  # what is compiled is compiled by now
    made = len(body) + 2**20  # a copy of the bytes; it became hundreds of megabytes
    with at_most(made), pytest.raises(ArgumentError, match="at most 500,000 lists and tables"):
        Parser(kind).read(media, body)


@pytest.mark.parametrize("media", [JSON, PACKED])
def test_as_many_as_are_allowed_are_read(media: bytes) -> None:
    encode = msgspec.json.encode if media == JSON else msgspec.msgpack.encode
    body, context, field = 1, 1, 1
    most = MOST_CONTAINERS - body - context - field
    read: Any = Parser(DecisionRequest).read(media, encode({"context": {"a": [[]] * most}}))
    assert len(read.context["a"]) == most
    with pytest.raises(ArgumentError, match="lists and tables"):
        Parser(DecisionRequest).read(media, encode({"context": {"a": [[]] * (most + 1)}}))


def test_rows_as_bytes_are_no_containers_whatever_they_are() -> None:
    rows = b"\x90\x99\xdd\x3e" * 1_000_000
    packed = msgspec.msgpack.encode({"actions": rows})
    assert containers(packed, packed=True) == 1
    read: Any = Parser(DecisionRequest).read(PACKED, packed)
    assert read.actions == rows


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300)
    | st.builds(msgspec.msgpack.Ext, st.integers(0, 127), st.binary(max_size=300)),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=60,
)


def made_of(value: object) -> int:
    """The lists and tables of a value, counted on the value itself."""
    if isinstance(value, dict):
        return 1 + sum(made_of(one) for one in value.values())
    return 1 + sum(made_of(one) for one in value) if isinstance(value, list) else 0


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_a_walk_counts_what_a_reader_makes(value: object) -> None:
    assert containers_among(msgspec.msgpack.encode(value)) == made_of(value)


def test_a_walk_counts_long_texts_bytes_lists_and_tables() -> None:
    long = {"text": "[" * 70_000, "bytes": b"\x90" * 70_000, "list": [[]] * 70_000, "table": {"a": {}, "b": {}}}
    wide: dict[str, list[int]] = {str(number): [] for number in range(70_000)}
    for value in (long, wide):
        assert containers_among(msgspec.msgpack.encode(value)) == made_of(value)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_a_walk_ends_on_any_bytes(body: bytes) -> None:
    assert 0 <= containers_among(body) <= len(body)
