"""Inputs that are nearly right: seeded mutations of valid examples, of their bytes and of the JSON in them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

__all__ = ["mutated"]

BYTES = [b"", b"\0", b"\xff", b"\x7f", b"\x80", b"[", b"{", b'"', b"FBM1", b"FBE3", b"FBG1", b"\xed\xa0\x80", b"1e999"]
NUMBERS = [0, 1, 2, 7, 8, 9, 127, 128, 255, 2**16 - 1, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, -1e308, 5e-324, 10**25, 10**400, -(10**30), "", "x", "silo", "é",
    "\0", "0" * 64, "ff", "f", "a b", "\ud800", [], {}, [[]], [1], {"kind": "every"}, {"x": {"x": {}}}, [None] * 20,
    float("nan"), float("inf"), -float("inf"),
]  # fmt: skip
WHOLE = [
    b"", b"null", b"0", b"[]", b"{}", b'""', b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5000, b"-", b"NaN", b"\xff\xfe",
    b"[" * 3000 + b"]" * 3000, b'{"a":1}' * 2,
]  # fmt: skip


def mutated(examples: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Inputs without end, the same ones for the same seed: an example with a few changes, now and then mere noise."""
    chance = random.Random(seed)
    trees = [tree for tree in map(_tree, examples) if tree is not None]
    while True:
        kind = chance.random()
        if kind < 0.02:
            yield chance.randbytes(chance.choice((0, 1, 4, 8, 40, 104, 300, 2000)))
        elif kind < 0.025:
            yield chance.choice(WHOLE)
        elif trees and kind < 0.6:
            yield _as_json(_changed_tree(chance, chance.choice(trees)))
        else:
            data = chance.choice(examples)
            for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
                data = _changed(chance, data, examples)
            yield data


def _changed(chance: random.Random, data: bytes, examples: Sequence[bytes]) -> bytes:
    """One change of the bytes."""
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 4, 8, 32))
    match chance.randrange(9):
        case 0 if at < len(data):
            return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        case 1:
            return data[:at] + chance.choice(BYTES) + data[at + chance.choice((0, 1, 4)) :]
        case 2:
            return data[:at] + data[at + size :]
        case 3:
            return data[:at] + data[at : at + size] * chance.choice((2, 3, 100)) + data[at + size :]
        case 4:
            return data[:at] + chance.randbytes(size) + data[at:]
        case 5:
            return data[:at]
        case 6:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(NUMBERS).to_bytes(8, "little")[:width]
            return data[:at] + number + data[at + width :]
        case 7:
            other = chance.choice(examples)
            return data[:at] + other[chance.randrange(len(other) + 1) :]
        case _:
            return data + chance.randbytes(size)


def _changed_tree(chance: random.Random, tree: Any) -> Any:
    """A copy of plain data with one of its places changed, or a few."""
    copy = json.loads(json.dumps(tree))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(copy))
        if not places:
            return _value(chance)
        holder, key = chance.choice(places)
        match chance.randrange(6):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[chance.choice(("x", "kind", "name", "", "plan", "silos"))] = _value(chance)
            case 2:
                other, name = chance.choice(places)
                holder[key] = json.loads(_as_json(other.get(name))) if isinstance(other, dict) else []
            case 3 if type(holder[key]) in (int, float) and abs(holder[key]) < 1e300:
                holder[key] = holder[key] * chance.choice((-1, 0.5, 2, 1e6)) + chance.choice((0, 1, -1))
            case _:
                holder[key] = _value(chance)
    return copy


def _value(chance: random.Random) -> Any:
    return deepcopy(chance.choice(VALUES))  # it may be changed in its turn


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def _tree(data: bytes) -> Any | None:
    try:
        tree = json.loads(data)
    except ValueError:
        return None
    return tree if isinstance(tree, (dict, list)) else None


def _as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()
