"""`fedbandit doctor` and `fedbandit health`: what is wrong with a party, and whether a running party is well."""

from __future__ import annotations

import ssl
from typing import Annotated

import typer

from fedbandit._validate import ArgumentError
from fedbandit.cli import options, output

__all__ = ["doctor", "health"]

UNREADY, UNANSWERED = 1, 2  # exit codes


def doctor(home: options.Home, broker_ca: options.BrokerCa = "", json: options.Json = False) -> None:
    """Check everything that a party depends on, from its directory, whether it runs or not.

    That is: keys and who may read them, the federation's file, certificates, store, clock, disk space, limits, port,
    broker. For a founder's directory, it is the broker and its streams. Exit code 0: all is well, 1: there are
    warnings, 2: something fails.
    """
    from fedbandit.federation.doctor.examination import examine
    from fedbandit.federation.doctor.findings import worst

    output.quiet()
    found = list(examine(home, options.absolute(broker_ca)))
    if json:
        output.print_json({"party": str(home), "code": worst(found), "findings": [one._asdict() for one in found]})
    for one in () if json else found:
        output.say(f"{one.level:<8}{one.check}: {one.says}")
        if one.do and one.level != "ok":
            output.say(f"{'':<8}  -> {one.do}")
    if worst(found):
        raise typer.Exit(worst(found))


def health(
    home: options.Home,
    alive: Annotated[bool, typer.Option("--alive", help="Ask only whether it is alive, not whether it works.")] = False,
    json: options.Json = False,
) -> None:
    """Ask the party that runs on this machine how it is.

    It is asked as its settings say, over TLS with its own certificate. Exit code 0: it is well, 1: it is alive but
    something keeps it from working, 2: it does not answer.
    """
    from fedbandit.federation.doctor.asking import ask
    from fedbandit.federation.setup.home import Home as Party

    party = Party.load(home)
    try:
        answer = ask(party, "/healthz" if alive else "/readyz")
    except ArgumentError:
        raise
    except (OSError, ssl.SSLError) as error:
        output.remark(f"it does not answer: {error}; `fedbandit doctor {home}` looks for the reason")
        raise typer.Exit(UNANSWERED) from None
    if json:
        output.print_json(answer.body)
    else:
        output.say("ok" if answer.status == 200 else str(answer.body.get("problem") or answer.status))
    if answer.status != 200:
        raise typer.Exit(UNREADY)
