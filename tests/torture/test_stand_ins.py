"""Stand-ins that do not take what the real code takes are refused."""

from collections.abc import Callable

import pytest

from tests.torture.stand_ins import check_stand_in

pytestmark = pytest.mark.fire


def real(first: int, second: int = 0, *, third: int = 0) -> None: ...


def open_ended(*given: int, **more: int) -> None: ...


@pytest.mark.parametrize(
    ("original", "instead"),
    [
        (real, lambda first, second, third: None),
        (real, lambda *given, **more: None),
        (open_ended, lambda *given, **more: None),
        (len, lambda *given: 0),
        (3, lambda: 0),
    ],
)
def test_those_that_take_as_much_are_taken(original: Callable[..., object], instead: Callable[..., object]) -> None:
    check_stand_in(original, instead)


@pytest.mark.parametrize(
    ("original", "instead"),
    [
        (real, lambda first: None),
        (real, lambda first, second: None),
        (real, lambda first, second, third, fourth: None),
        (open_ended, lambda *given: None),
        (open_ended, lambda **more: None),
    ],
)
def test_those_that_take_less_or_more_are_refused(
    original: Callable[..., object], instead: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="stand-in"):
        check_stand_in(original, instead)
    holder = type("Holder", (), {"method": staticmethod(original)})
    with pytest.raises(AssertionError, match="stand-in"):
        monkeypatch.setattr(holder, "method", instead)
