"""The inner loop of the LETOR reader, compiled: from bytes to numbers, up to the first error.

A row is ``label qid:Q 1:v 2:v ... F:v``, possibly with ``# comment``; blank and comment lines are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from fedbandit._arrays import Integers, Singles

__all__ = ["BAD_FEATURE", "BAD_LABEL", "BAD_QUERY", "BAD_VALUE", "FINE", "TOO_FEW", "TOO_MANY", "scan"]

Bytes = NDArray[np.uint8]

FINE, BAD_LABEL, BAD_QUERY, BAD_FEATURE, BAD_VALUE, TOO_FEW, TOO_MANY = range(7)

_NEWLINE, _HASH, _COLON, _DOT, _MINUS, _PLUS = (ord(c) for c in "\n#:.-+")
_SPACE, _TAB, _RETURN = (ord(c) for c in " \t\r")
_ZERO, _NINE, _LOWER_E, _UPPER_E = (ord(c) for c in "09eE")
_Q, _I, _D = (ord(c) for c in "qid")
_MOST_DIGITS = 18  # an int64 always holds this many; further digits only move the decimal point
_LARGEST = float(np.finfo(np.float32).max)

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """The same function, compiled on its first call."""
    return cast(Function, numba.njit(nogil=True)(function))


@_compiled
def _skip_blanks(text: Bytes, at: int) -> int:
    while at < text.size and (text[at] == _SPACE or text[at] == _TAB or text[at] == _RETURN):
        at += 1
    return at


@_compiled
def _skip_line(text: Bytes, at: int) -> int:
    while at < text.size and text[at] != _NEWLINE:
        at += 1
    return at


@_compiled
def _at_end(text: Bytes, at: int) -> bool:
    return at >= text.size or text[at] == _NEWLINE or text[at] == _HASH


@_compiled
def _ends_token(text: Bytes, at: int) -> bool:
    return _at_end(text, at) or text[at] == _SPACE or text[at] == _TAB or text[at] == _RETURN


@_compiled
def _whole(text: Bytes, at: int) -> tuple[int, int]:
    """A whole number >= 0 from byte `at`: (value, the byte after it), the latter -1 if there is no number."""
    value, start = 0, at
    while at < text.size and _ZERO <= text[at] <= _NINE:
        value = value * 10 + int(np.int64(text[at]) - _ZERO)
        at += 1
    return value, (at if 0 < at - start <= _MOST_DIGITS else -1)


@_compiled
def _decimal(text: Bytes, at: int) -> tuple[float, int]:
    """A finite decimal number from byte `at`: (value, the byte after it), the latter -1 if there is no number."""
    negative = at < text.size and text[at] == _MINUS
    if negative or (at < text.size and text[at] == _PLUS):
        at += 1
    mantissa, kept, exponent, digits = 0, 0, 0, 0
    after_dot = False
    while at < text.size:
        if text[at] == _DOT and not after_dot:
            after_dot = True
        elif _ZERO <= text[at] <= _NINE:
            digits += 1
            if kept < _MOST_DIGITS:
                mantissa = mantissa * 10 + int(np.int64(text[at]) - _ZERO)
                kept += 1 if mantissa > 0 else 0
                exponent -= 1 if after_dot else 0
            else:
                exponent += 0 if after_dot else 1
        else:
            break
        at += 1
    if digits == 0:
        return 0.0, -1
    if at < text.size and (text[at] == _LOWER_E or text[at] == _UPPER_E):
        at += 1
        shrinks = at < text.size and text[at] == _MINUS
        if shrinks or (at < text.size and text[at] == _PLUS):
            at += 1
        power, at = _whole(text, at)
        if at < 0:
            return 0.0, -1
        exponent += -power if shrinks else power
    if mantissa == 0 or exponent < -400:
        return 0.0, at
    if exponent > 400:
        return 0.0, -1
    # Dividing by an exact power of ten rounds once, where multiplying by its inverse would round twice.
    size = mantissa / 10.0**-exponent if exponent < 0 else mantissa * 10.0**exponent
    return (-size if negative else size), (at if size <= _LARGEST else -1)


@_compiled
def scan(
    text: Bytes,
    labels: NDArray[np.int32],
    queries: Integers,
    lines: Integers,
    features: Singles,
) -> tuple[int, int, int, int]:
    """Fill the arrays row by row; return (rows, lines passed, what is wrong, at which byte)."""
    row, line, at = 0, 0, 0
    while True:
        at = _skip_blanks(text, at)
        if at >= text.size:
            return row, line, FINE, at
        if _at_end(text, at):
            at = _skip_line(text, at) + 1
            line += 1
            continue
        label, end = _whole(text, at)
        if end < 0 or label > 2**31 - 1 or not _ends_token(text, end):
            return row, line, BAD_LABEL, at
        at = _skip_blanks(text, end)
        if at + 4 > text.size or not (
            text[at] == _Q and text[at + 1] == _I and text[at + 2] == _D and text[at + 3] == _COLON
        ):
            return row, line, BAD_QUERY, at
        query, end = _whole(text, at + 4)
        if end < 0 or not _ends_token(text, end):
            return row, line, BAD_QUERY, at
        for column in range(features.shape[1]):
            at = _skip_blanks(text, end)
            if _at_end(text, at):
                return row, line, TOO_FEW, at
            feature, end = _whole(text, at)
            if end < 0 or feature != column + 1 or end >= text.size or text[end] != _COLON:
                return row, line, BAD_FEATURE, at
            value, end = _decimal(text, end + 1)
            if end < 0 or not _ends_token(text, end):
                return row, line, BAD_VALUE, at
            features[row, column] = value
        at = _skip_blanks(text, end)
        if not _at_end(text, at):
            return row, line, TOO_MANY, at
        at = _skip_line(text, at) + 1
        labels[row], queries[row], lines[row] = label, query, line
        row += 1
        line += 1
