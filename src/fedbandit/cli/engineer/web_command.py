"""`fedbandit web`: the planner as a page in a browser, served only to this machine unless told otherwise."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from fedbandit._validate import ArgumentError
from fedbandit.cli import output

__all__ = ["web"]


def web(
    host: Annotated[str, typer.Option(help="Address to serve on [this machine only].")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve on; 0 for any that is free.", min=0, max=65_535)] = 8000,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Plan a federation in the browser: what to do, what it costs, and simulations while you look."""
    from fedbandit.web.planner.planner_page import planner_server

    try:
        made = planner_server(host, port)
    except OSError as error:
        said = f"must be an address of this machine with a free port, got {host!r} with {port} ({error.strerror})"
        raise ArgumentError("host", said) from None
    with made as server:
        output.say(f"planner: {server.url}  (Ctrl-C ends it)")
        if open_:
            webbrowser.open(server.url)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            output.remark("ended")
