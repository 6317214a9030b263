"""numba's `njit`, with its cache on disk switched on only where numba finds a folder to write to.

Asked to cache, numba looks for a writable folder beside the source, in the user's home and in NUMBA_CACHE_DIR. If it
finds none, it refuses to compile at all. In a read-only container without a home, every import would then fail. Without
a cache the code is compiled again at each start, which is slower but otherwise the same. (The folder for temporary
files cannot hold the cache: other users may write there, and the cache is loaded as code.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache

__all__ = ["njit"]

F = TypeVar("F", bound=Callable[..., Any])


def njit(*signature: Any, cache: bool = True, **options: Any) -> Callable[[F], F]:
    """A decorator that compiles a function, for one signature if it is given."""

    def compiled(function: F) -> F:
        compile_: Any = numba.njit  # its type hints do not allow such signatures
        made: F = compile_(*signature, cache=cache and _has_place(function), **options)(function)
        return made

    return compiled


def _has_place(function: Callable[..., Any]) -> bool:
    """Whether numba finds a folder in which it can cache this function."""
    try:
        FunctionCache(function)  # type: ignore[no-untyped-call]
    except RuntimeError:  # numba raises it when there is no such folder
        return False
    return True
