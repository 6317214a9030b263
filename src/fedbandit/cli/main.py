"""The `fedbandit` command: a table of commands, and one place where errors become one line and exit code 2.

A command's module is imported when the command is run and not before, so that `fedbandit --help` needs none of them
and `fedbandit plan` does not wait for the simulator or for a web server.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fedbandit import __version__, _words
from fedbandit.cli.examples import EXAMPLES

__all__ = ["COMMANDS", "app", "loaded", "main"]


class Command(NamedTuple):
    """A command: its line in `fedbandit --help`, and its module below `fedbandit.cli`.

    The module has a function or a typer application with the command's name.
    """

    module: str
    help: str


COMMANDS = {
    "plan": Command("researcher.plan_command", "What every protocol would promise and cost, or the best one."),
    "web": Command("engineer.web_command", "The planner as a page in a browser."),
    "new": Command("researcher.new_command", "A starting schema for a table of records."),
    "simulate": Command("researcher.simulate_command", "Compare protocols by their time-averaged group regret."),
    "frontier": Command("researcher.frontier_command", "Regret against epsilon for all protocols, on the same users."),
    "compare": Command("researcher.compare_command", "Your protocol against the paper's, ours and the literature's."),
    "evaluate": Command("researcher.evaluate_command", "What policies would have earned, from a log of decisions."),
    "replay": Command("researcher.replay_command", "What a federation would have earned on past records."),
    "paper": Command("researcher.paper_command", "The paper's figures and claims, made again."),
    "data": Command("researcher.data_command", "Look at data before using them."),
    "bench": Command("researcher.bench_command", "Time the engine against the reference, or a live federation."),
    "audit": Command("officer.audit_command", "Try to break a protocol, and bound its epsilon from below."),
    "attack": Command("officer.attack_command", "Attacks as worked examples, without and with the defence."),
    "ledger": Command("officer.ledger_command", "What a silo has spent and what is left."),
    "certificate": Command("officer.certificate_command", "One page for a privacy officer: promise, proof and audit."),
    "federation": Command("engineer.federation_command", "Found a federation, join one."),
    "silo": Command("engineer.party_command", "A silo: serves its own applications."),
    "mixer": Command("engineer.party_command", "The mixer: adds what it may read, shuffles what it may not."),
    "analyzer": Command("engineer.party_command", "The analyzer: decodes syncs, sends models."),
    "status": Command("engineer.status_command", "Syncs, silos and budget of a party."),
    "backup": Command("engineer.backup_command", "Save a party, running or not, in one file."),
    "restore": Command("engineer.backup_command", "Put a party back, and say what was lost."),
    "doctor": Command("engineer.doctor_command", "What is wrong with a party, and what to do about it."),
    "health": Command("engineer.doctor_command", "Whether the party that runs on this machine is well."),
    "demo": Command("engineer.demo_command", "A live federation on this machine, and what it learnt."),
}

INTERRUPTED = 130  # the exit code of a program that was stopped with Ctrl-C
QUIET: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
TITLE = "Private federated linear contextual bandits: plan, simulate, audit, run."

app = typer.Typer(help=TITLE, **QUIET | {"add_completion": True})


def loaded(name: str) -> TyperCommand | TyperGroup:
    """The command called `name`, after importing its module."""
    found = getattr(importlib.import_module(f"fedbandit.cli.{COMMANDS[name].module}"), name)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(**QUIET)
        found.command(name)(function)
    command = get_command(found)
    assert isinstance(command, TyperCommand | TyperGroup)
    command.epilog = _example(name)
    if isinstance(command, TyperGroup):
        for sub, inner in command.commands.items():
            inner.epilog = _example(f"{name} {sub}")
    return command


def _example(words: str) -> str | None:
    """The example at the end of a command's help; \\b keeps its line breaks."""
    return f"For example:\n\n\b\n  {EXAMPLES[words]}" if words in EXAMPLES else None


class _Unloaded(TyperCommand):
    """A placeholder in the list of commands: when it is run, it loads the real command and hands over to it."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        command = loaded(str(self.name))
        if isinstance(command, TyperGroup) and not args:
            args = ["--help"]  # a group without a command lists its commands
        return command.make_context(info_name, args, parent, **extra)


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.help, cls=_Unloaded)(lambda: None)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    """Without a command, print the help."""
    if version:
        typer.echo(f"fedbandit {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line. Bad input gives one line on standard error and exit code 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:  # the command-line parser's own complaints
        code = _refuse(error.format_message())
    except typer.Abort:  # Ctrl-C in some versions of the parser; others return the exit code
        code = INTERRUPTED
    except ModuleNotFoundError as error:
        code = _refuse(_words.to_install(error) or str(error))
    except OSError as error:
        code = _refuse(str(error) if error.filename is None else f"{error.filename}: {error.strerror}")
    except (ValueError, ImportError) as error:
        code = _refuse(str(error))
    except sqlite3.OperationalError as error:
        code = _refuse(f"the store cannot be used: {error}")
    except sqlite3.Error as error:
        code = _refuse(f"the store is damaged ({error}): put the newest whole copy in its place")
    except (OverflowError, RecursionError, MemoryError) as error:  # the input is too large or nested too deeply
        code = _refuse(f"the input is too large: {str(error) or type(error).__name__}")
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psycopg":  # the extra may not be installed
            raise
        code = _refuse(f"the database cannot be used: {str(error).splitlines()[0]}")
    if code == INTERRUPTED:
        typer.echo("interrupted before anything was finished", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> int:
    from fedbandit.cli import output  # what draws tables takes a while to load

    output.remark(f"error: {' '.join(message.split())}")
    return 2
