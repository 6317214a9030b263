"""Functions that compiled code chooses by the kind of their first argument, as a method is chosen by its object.

Kernels take named tuples: users whose contexts are drawn fresh or picked from a table, silos that act lazily or
eagerly. Numba compiles the one driver anew for every combination and settles there which function is meant, so that
nothing is left to decide while rounds are played.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba.extending import overload

__all__ = ["for_kind"]

Implementation = TypeVar("Implementation", bound=Callable[..., Any])


def for_kind(function: Callable[..., Any], kind: type) -> Callable[[Implementation], Implementation]:
    """In compiled code, calls of `function` whose first argument is a `kind` go to the decorated function."""

    def register(implementation: Implementation) -> Implementation:
        def chosen(*types: Any) -> Implementation | None:
            return implementation if getattr(types[0], "instance_class", None) is kind else None

        overload(function, strict=False, inline="always")(chosen)
        return implementation

    return register
