"""`fedbandit web`: the planner as a page in a browser, from this machine alone unless somebody says otherwise."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from fedbandit.cli import output

__all__ = ["web"]


def web(
    host: Annotated[str, typer.Option(help="Where to serve; by default nobody else can look.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Plan a federation in the browser: what to do, what it costs, played while you look."""
    from fedbandit.web.planner.planner_page import planner_server

    with planner_server(host, port) as server:
        output.say(f"planner: {server.url}  (Ctrl-C ends it)")
        if open_:
            webbrowser.open(server.url)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            output.remark("ended")
