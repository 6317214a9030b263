"""Progress bars, shown on a terminal or in a notebook, and only after two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["PATIENCE", "bar_on", "late_bar", "progress_or_bar"]

PATIENCE = 2.0  # seconds


def bar_on(console: Console) -> Progress:
    """A bar with the time left, which disappears when it is done."""
    from rich import progress as rich

    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn())
    times = (rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())
    return rich.Progress(*columns, *times, console=console, transient=True)


@contextmanager
def late_bar(
    what: str, console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with the share that is done. The first call after `PATIENCE` shows a bar.

    The bar appears on a terminal, or in a notebook that has ipywidgets: without them, rich prints a warning instead.
    """
    began, bars = clock(), list["Progress"]()
    seen = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)

    def report(share: float) -> None:
        if seen and not bars and clock() - began >= PATIENCE:
            bars.append(bar_on(console))
            bars[0].add_task(what, total=1.0)
            bars[0].start()
        for bar in bars:
            bar.update(bar.task_ids[0], completed=share)

    try:
        yield report
    finally:
        for bar in bars:
            bar.stop()


@contextmanager
def progress_or_bar(progress: Callable[[float], None] | None, what: str) -> Iterator[Callable[[float], None]]:
    """The caller's own `progress` if there is one, else a bar on standard error."""
    if progress is not None:
        yield progress
        return
    from rich.console import Console

    with late_bar(what, Console(stderr=True)) as report:
        yield report
