"""`fedbandit silo serve`, `mixer run`, `analyzer run`: one party of a live federation, as a process.

Their command `forward` brings the store of a party forward.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import spans
from fedbandit.cli import checks, options, output
from fedbandit.federation.leaving import leave
from fedbandit.privacy.budget import at_most

if TYPE_CHECKING:
    from fedbandit.federation.process import Orders
    from fedbandit.federation.recovery import Recovery

__all__ = ["analyzer", "mixer", "silo"]

silo = typer.Typer(
    help="A silo: serves its own applications.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
mixer = typer.Typer(
    help="The mixer: adds what it may read, shuffles what it may not.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
analyzer = typer.Typer(
    help="The analyzer: decodes syncs, sends models.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
LogStyle = Annotated[
    str, typer.Option("--log", help="How log lines are written: text or json; else as party.json says.")
]
Stay = Annotated[
    bool,
    typer.Option(
        "--stay",
        help="If others work under another plan, keep running and say so, instead of ending with code 3. Without it,"
        " a service manager that restarts on every code would do so for ever.",
    ),
]
Agreed = Annotated[bool, typer.Option("--yes", help="Give up what is shown without this. It cannot be undone.")]


@silo.command()
def serve(
    home: options.Home,
    workers: Annotated[int, typer.Option(help="Processes; more than one needs PostgreSQL.")] = 1,
    new_term: Annotated[bool, typer.Option("--new-term", help="Begin a new term under a new plan.")] = False,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="The clock is right: draw all releases that are overdue.")
    ] = False,
    broker_ca: options.BrokerCa = "",
    log: LogStyle = "",
    stay: Stay = False,
) -> None:
    """Serve this silo's applications over HTTP and take part in the federation."""
    from fedbandit.federation.workers import serve as run_workers

    leave(run_workers(home, workers, _orders(home, broker_ca, log, stay, new_term, catch_up)))


@silo.command("log")
def export_log(
    home: options.Home,
    out: Annotated[Path, typer.Option(help="Folder for decisions.parquet and models.parquet, as raw as the log.")],
) -> None:
    """Write the silo's own log of its decisions as Parquet, for `fedbandit evaluate`. Nothing is sent."""
    from fedbandit.federation.setup.home import Home
    from fedbandit.federation.store.decision_log import KEPT_DAYS, DecisionLog

    found = Home.load(home)
    if not found.decision_log.exists():
        raise ArgumentError("home", "has no log of decisions: set log_days in its party.json")
    log = DecisionLog(found.decision_log, found.settings.log_days or KEPT_DAYS)
    log.expire(time.time())
    with checks.writing("out", out):
        output.say(f"{log.export(out)}: {len(log.frame()):,} decisions")
    log.close()


@mixer.command("run")
def run_mixer(home: options.Home, broker_ca: options.BrokerCa = "", log: LogStyle = "", stay: Stay = False) -> None:
    """Run the mixer."""
    _run(home, "mixer", broker_ca, log, stay)


@analyzer.command("run")
def run_analyzer(home: options.Home, broker_ca: options.BrokerCa = "", log: LogStyle = "", stay: Stay = False) -> None:
    """Run the analyzer."""
    _run(home, "analyzer", broker_ca, log, stay)


@silo.command("forward")
def forward_silo(
    home: options.Home, yes: Agreed = False, broker_ca: options.BrokerCa = "", json: options.Json = False
) -> None:
    """Bring an old copy of a silo's store forward: releases that others have seen are spent, and not drawn again."""
    found = _recovered(home, "silo", yes, broker_ca)
    if json or not found.syncs:
        _report(home, found, json, "")
        return
    spent = ""
    if found.epsilon is not None and found.epsilon_after is not None:
        spent = f" (epsilon {at_most(found.epsilon_after)} instead of {at_most(found.epsilon)})"
    _report(
        home,
        found,
        json,
        f"their releases count as missed and as spent{spent}, {found.rewards} rewards that this copy has counted in"
        " their batches are only in them, decisions made before now whose reward it does not know no longer count, and"
        " people who were counted in the lost batches may count once more",
    )


@mixer.command("forward")
def forward_mixer(
    home: options.Home, yes: Agreed = False, broker_ca: options.BrokerCa = "", json: options.Json = False
) -> None:
    """Bring an old copy of a mixer's store forward: no sync that others have seen gets a second total."""
    lost = "their totals stay as the analyzer has them; if releases for the next sync are lost too, it is skipped"
    _report(home, _recovered(home, "mixer", yes, broker_ca), json, lost)


@analyzer.command("forward")
def forward_analyzer(
    home: options.Home, yes: Agreed = False, broker_ca: options.BrokerCa = "", json: options.Json = False
) -> None:
    """Bring an old copy of an analyzer's store forward: no sync that others have seen gets a second model."""
    lost = "their models stay as the silos have them; later models leave out what those syncs added"
    _report(home, _recovered(home, "analyzer", yes, broker_ca), json, lost)


def _recovered(path: Path, role: str, yes: bool, broker_ca: str) -> Recovery:
    from fedbandit.federation.recovery import recover
    from fedbandit.federation.setup.home import Home

    home = Home.load(path)
    _check_role(home.settings.role, role)
    if broker_ca:
        home = replace(home, settings=replace(home.settings, broker_ca=_checked_ca(path, broker_ca)))
    output.quiet()
    return asyncio.run(recover(home, agreed=yes))


def _report(home: Path, found: Recovery, json: bool, lost: str) -> None:
    """Print what was given up, or would be. Without --yes nothing was done, and the exit code is 1."""
    if json:
        output.print_json(found._asdict())
    elif not found.syncs:
        output.say("not behind: others have seen nothing that this store does not hold")
    else:
        syncs = spans(found.syncs)
        was = "brought forward, given up" if found.done else "behind, to be given up"
        output.say(f"{home} is {was}: syncs {syncs}. {lost[0].upper()}{lost[1:]}.")
        if not found.done:
            output.say(
                "Nothing was done. Put the newest copy in its place if there is one; if not, run this with --yes."
            )
    if found.syncs and not found.done:
        raise typer.Exit(1)


def _run(path: Path, role: str, broker_ca: str, log: str, stay: bool) -> None:
    from fedbandit.federation.process import run
    from fedbandit.federation.setup.home import Home

    _check_role(Home.load(path).settings.role, role)
    leave(run(path, _orders(path, broker_ca, log, stay)))


def _orders(path: Path, broker_ca: str, log: str, stay: bool, new_term: bool = False, catch_up: bool = False) -> Orders:
    from fedbandit.federation.process import Orders
    from fedbandit.federation.telemetry.logs import STYLES

    style = _validate.one_of("log", log, STYLES) if log else None
    return Orders(new_term, catch_up, _checked_ca(path, broker_ca), style, stay)


def _checked_ca(path: Path, broker_ca: str) -> str:
    from fedbandit.federation.setup.home import Home

    return checks.broker_ca(broker_ca, Home.load(path).agreement().broker) if broker_ca else ""


def _check_role(found: str, role: str) -> None:
    if found != role:
        raise ArgumentError("home", f"must be the directory of the {role}, got that of the {found}")
