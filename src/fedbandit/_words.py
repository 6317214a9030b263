"""Numbers in sentences."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """So many of them, in the singular where it is one.

    >>> counted(1, "silo"), counted(1_000, "silo")
    ('1 silo', '1,000 silos')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
