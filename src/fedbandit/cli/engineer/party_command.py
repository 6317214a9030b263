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
    catch_up: Annotated[bool, typer.Option(help="The clock is right: draw all releases that are overdue.")] = False,
    broker_ca: options.BrokerCa = "",
) -> None:
    """Serve this silo's applications over HTTP and take part in the federation."""
    from fedbandit.federation.process import Orders
    from fedbandit.federation.workers import serve as run_workers

    _exit(run_workers(home, workers, Orders(new_term, catch_up, broker_ca)))


@mixer.command("run")
def run_mixer(home: options.Home, broker_ca: options.BrokerCa = "") -> None:
    """Run the mixer."""
    _run(home, "mixer", broker_ca)


@analyzer.command("run")
def run_analyzer(home: options.Home, broker_ca: options.BrokerCa = "") -> None:
    """Run the analyzer."""
    _run(home, "analyzer", broker_ca)


def _run(path: Path, role: str, broker_ca: str) -> None:
    from fedbandit.federation.process import Orders, run
    from fedbandit.federation.setup.home import Home

    found = Home.load(path).settings.role
    if found != role:
        raise ArgumentError("home", f"must be the directory of a {role}, got that of a {found}")
    _exit(run(path, Orders(broker_ca=broker_ca)))


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)
