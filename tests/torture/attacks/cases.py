"""What an attack is: a name, who attacks, what is tried, what must happen, and how it is played."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Case", "Table"]

Place = TypeVar("Place")


class Case(NamedTuple, Generic[Place]):
    """One row of the table of attacks. `play` raises if what must happen did not; it is played in a place that is made
    with `setting`."""

    name: str
    who: str
    tried: str
    must: str
    play: Callable[[Place], Awaitable[None]]
    setting: dict[str, Any]


class Table(Generic[Place]):
    """Cases of one kind, in the order in which they were written down."""

    def __init__(self) -> None:
        self.cases: list[Case[Place]] = []

    def attack(
        self, who: str, tried: str, must: str, **setting: Any
    ) -> Callable[[Callable[[Place], Awaitable[None]]], None]:
        """Add the function below as a case; its name is the case's."""

        def add(play: Callable[[Place], Awaitable[None]]) -> None:
            self.cases.append(Case(play.__name__, who, tried, must, play, setting))

        return add

    def __getitem__(self, name: str) -> Case[Place]:
        """The case of this name."""
        return next(case for case in self.cases if case.name == name)
