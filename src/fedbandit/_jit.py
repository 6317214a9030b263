"""numba's `njit`, which keeps compiled code for the next start where there is a place for it, and only there.

numba refuses to compile at all if it is to keep the result and finds no folder that can be written: not beside the
source, not in the user's home, not in NUMBA_CACHE_DIR. In a read-only container without a home that would end every
import. Compiling again at each start is slower, and nothing else. (The folder for temporary files is no place for it:
others may write there, and what is kept is loaded as code.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache

__all__ = ["njit"]

F = TypeVar("F", bound=Callable[..., Any])


def njit(*signature: Any, cache: bool = True, **options: Any) -> Callable[[F], F]:
    """A decorator that compiles a function, for a signature if one is given."""

    def compiled(function: F) -> F:
        compile_: Any = numba.njit  # its types know no signatures of this kind
        made: F = compile_(*signature, cache=cache and _has_place(function), **options)(function)
        return made

    return compiled


def _has_place(function: Callable[..., Any]) -> bool:
    """Whether numba finds a folder for what it compiles of this function."""
    try:
        FunctionCache(function)  # type: ignore[no-untyped-call]
    except RuntimeError:  # numba's word for: there is none
        return False
    return True
