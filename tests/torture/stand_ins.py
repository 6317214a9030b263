"""What is put in the place of real code to plant a bug must take what the real code takes.

If it does not, the call raises a TypeError, the test fails, and the bug counts as caught although nobody looked for it.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

__all__ = ["check_stand_in", "checked_stand_ins"]

_Kind = inspect.Parameter


def check_stand_in(original: object, instead: object) -> None:
    """Fail if `original` can be called in a way in which `instead` cannot. Classes and values are left alone."""
    if isinstance(original, type) or not (callable(original) and callable(instead)):
        return
    try:
        takes = inspect.signature(original).parameters.values()
        given = inspect.signature(instead)
    except ValueError:  # a builtin that does not say what it takes
        return
    everything = [one.name for one in takes if one.kind in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)]
    named = {one.name: one.name for one in takes if one.kind is _Kind.KEYWORD_ONLY}
    kinds = {one.kind for one in given.parameters.values()}
    for one in takes:
        if one.kind in (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD):
            assert one.kind in kinds, f"the stand-in for {original} takes no {one}"
    try:
        given.bind(*everything, **named)
    except TypeError as error:
        raise AssertionError(f"the stand-in for {original} does not take what that takes: {error}") from None


@contextmanager
def checked_stand_ins() -> Iterator[None]:
    """Every `setattr` of every MonkeyPatch in this block is checked."""
    real = pytest.MonkeyPatch.setattr

    def checked(self: pytest.MonkeyPatch, target: Any, name: Any, *value: Any, **options: Any) -> None:
        if value and not isinstance(target, str):
            check_stand_in(getattr(target, name, None), value[0])
        real(self, target, name, *value, **options)

    with mock.patch.object(pytest.MonkeyPatch, "setattr", checked):
        yield
