"""`fedbandit status`: where a party stands, read from its own directory."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit.cli import checks, options, output
from fedbandit.privacy.budget import at_most, exactly

__all__ = ["status"]

SPENT = ("epsilon_spent", "epsilon_all_terms", "delta_all_terms")  # upper bounds: rounded up
TOKEN_BYTES = 18
PROBLEM = "problem"
BUDGET = ("epsilon", "delta")
ASSUMES = "assumes"  # a screenful that does not change while a term runs


def status(
    context: typer.Context,
    home: options.Home,
    json: options.Json = False,
    wide: options.Wide = False,
    web: Annotated[bool, typer.Option("--web", help="Serve it as a page that updates itself.")] = False,
    port: Annotated[int, typer.Option(help="With --web: the port; 0 for any that is free.")] = 0,
) -> None:
    """Syncs, silos and budget of the party in a directory, whether it runs or not."""
    if web:
        checks.no_effect(context, ("json", "wide"), "with --web")
        _serve(home, port)
        return
    checks.no_effect(context, ("port",), "without --web")
    from fedbandit.federation.status import status as read

    known = read(home)
    if json:
        output.print_json(known)
    else:
        first = {PROBLEM: known[PROBLEM]} if known.get(PROBLEM) else {}  # what somebody who asks must not overlook
        shown = {name: value for name, value in {**first, **known}.items() if wide or name != ASSUMES}
        rows = [[name, _cell(name, value)] for name, value in shown.items()]
        output.print_table(output.called(known["role"], known["party"]), ["", ""], rows)
        if not wide:
            output.remark(f"--wide also shows: {ASSUMES}.")


def _serve(home: Path, port: int) -> None:
    """Serve the page until Ctrl-C. Its token is new: the party's own token, which applications use, is not shown."""
    from fedbandit.web.status_page import status_server

    token = secrets.token_urlsafe(TOKEN_BYTES)
    with status_server(home, port, token) as server:
        output.say(f"page: {server.url}\ntoken: {token}")
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            output.remark("ended")


def _cell(name: str, value: Any) -> str:
    if name in SPENT:
        return "no bound" if value is None else at_most(value)
    return exactly(value) if name in BUDGET and value is not None else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return output.number(value)
    if value is None:
        return "none"
    if isinstance(value, list):
        texts = [str(one) for one in value]
        if any("," in text for text in texts):  # sentences: one line each
            return "\n".join(f"- {text}" for text in texts)
        return ", ".join(texts) or "none"
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
