"""Sizes of the torture suite, and the table that it ends with.

The same tests run twice: in part with `make test`, in full with `make torture`. A test asks `size(part, full)` how much
to do and tells `tally(kind, count)` how much it did.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.federation.conftest import empty_postgres, postgres_url
from tests.torture.stand_ins import checked_stand_ins

__all__ = ["Size", "Tally", "empty_postgres", "postgres_url", "size", "stand_ins", "tally"]

Size = Callable[[int, int], int]
Tally = Callable[[str, int], None]
LONGEST = "test_soak.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test begins first: the others fit beside it, and nobody waits for it alone at the end."""
    items.sort(key=lambda item: item.path.name != LONGEST)


@pytest.fixture(autouse=True)
def stand_ins() -> Iterator[None]:
    """A bug that is planted counts as caught only if what was planted can be called."""
    with checked_stand_ins():
        yield


@pytest.fixture
def size(request: pytest.FixtureRequest) -> Size:
    """How much to do: the first number in part, the second in full."""
    full = request.config.getoption("--full")
    return lambda part, whole: whole if full else part


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Says how much was done, under one of the names of `LEAST`."""

    def done(kind: str, count: int) -> None:
        record_property("torture", (kind, count))

    return done
