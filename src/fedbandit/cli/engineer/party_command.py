"""`fedbandit silo serve`, `mixer run`, `analyzer run`: one party of a live federation, as a process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbandit._validate import ArgumentError
from fedbandit.cli import options

__all__ = ["analyzer", "mixer", "silo"]

silo = typer.Typer(help="A silo: serves its own applications.", no_args_is_help=True, rich_markup_mode=None)
mixer = typer.Typer(
    help="The mixer: adds what it may read, shuffles what it may not.", no_args_is_help=True, rich_markup_mode=None
)
analyzer = typer.Typer(help="The analyzer: decodes syncs, sends models.", no_args_is_help=True, rich_markup_mode=None)


@silo.callback()
@mixer.callback()
@analyzer.callback()
def party() -> None:
    """Keeps the name of the only command."""


@silo.command()
def serve(
    home: options.Home,
    workers: Annotated[int, typer.Option(help="Processes; more than one needs PostgreSQL.")] = 1,
    new_term: Annotated[bool, typer.Option(help="Begin a new term under a new plan.")] = False,
) -> None:
    """Serve this silo's applications over HTTP and take part in the federation."""
    from fedbandit.federation.workers import serve as run_workers

    _exit(run_workers(home, workers, new_term))


@mixer.command("run")
def run_mixer(home: options.Home) -> None:
    """Run the mixer."""
    _run(home, "mixer")


@analyzer.command("run")
def run_analyzer(home: options.Home) -> None:
    """Run the analyzer."""
    _run(home, "analyzer")


def _run(path: Path, role: str) -> None:
    from fedbandit.federation.process import run
    from fedbandit.federation.setup.home import Home

    found = Home.load(path).settings.role
    if found != role:
        raise ArgumentError("home", f"must be the directory of a {role}, got that of a {found}")
    _exit(run(path))


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)
