"""The command itself: what it lists, what it loads, and how it refuses."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from fedbandit.cli import main as cli
from fedbandit.cli.main import COMMANDS, loaded
from tests.cli.harness import SMALL, Command, assert_refused

PROGRAM = [sys.executable, "-c", "from fedbandit.cli.main import main; main()"]
SLOW = (
    *("numba", "polars", "matplotlib", "uvicorn", "opendp", "nats", "sklearn", "ray", "cryptography", "httpx"),
    *("scipy.optimize", "scipy.stats", "scipy.signal", "pandas", "pyarrow", "prometheus_client", "psycopg", "msgspec"),
)


def test_no_command_says_what_there_is(fedbandit: Command) -> None:
    said = fedbandit()
    assert said.code == 0
    assert "plan" in said.out
    assert "simulate" in said.out
    assert fedbandit("--version").out.startswith("fedbandit 0.")
    assert_refused(fedbandit("dance"), "No such command")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed_and_can_be_loaded(name: str, fedbandit: Command) -> None:
    listed = fedbandit("--help").out
    assert f"\n  {name} " in listed
    assert COMMANDS[name].help in " ".join(listed.split())
    assert loaded(name).help
    said = fedbandit(name, "--help")
    assert said.code == 0
    assert f"fedbandit {name} " in said.out


@pytest.mark.parametrize("name", ["paper", "data", "federation", "silo", "mixer", "analyzer"])
def test_a_group_without_a_command_says_what_there_is(name: str, fedbandit: Command) -> None:
    said = fedbandit(name)
    assert (said.code, said.err) == (0, "")
    assert "Commands:" in said.out


@pytest.mark.parametrize("arguments", [("plan",), ("plan", "--best", "--json")])
def test_what_answers_at_once_loads_nothing_slow(arguments: tuple[str, ...]) -> None:
    """In a process of its own: here, other tests have imported everything."""
    program = (
        "import sys, fedbandit.cli.main as cli\n"
        "try:\n    cli.main()\n"
        f"finally:\n    sys.stderr.write('loaded: ' + ' '.join(name for name in {SLOW!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr.endswith("loaded: ")


def test_no_help_loads_anything_slow() -> None:
    """Every command, those within groups too, one after the other in one process: what one loads stays loaded."""
    program = f"""
import contextlib, io, sys
from fedbandit.cli.main import COMMANDS, app, loaded

def help_of(*words):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        app([*words, "--help"], standalone_mode=False)
    assert "--help" in said.getvalue(), words
    slow = [name for name in {SLOW!r} if name in sys.modules]
    assert not slow, (words, slow)

help_of()
assert "numpy" not in sys.modules
for name in COMMANDS:
    help_of(name)
    for sub in getattr(loaded(name), "commands", ()):
        help_of(name, sub)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_named(fedbandit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'nats.js'", name="nats.js")

    monkeypatch.setattr(cli, "loaded", missing)
    assert_refused(fedbandit("demo"), "No module named 'nats.js': pip install 'fedbandit[live]'")


def test_a_file_that_fails_is_named(fedbandit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", "party.key")

    monkeypatch.setattr(cli, "loaded", broken)
    said = fedbandit("status", "x")
    assert_refused(said, "error: party.key: No such file or directory")


def test_as_a_program_of_its_own() -> None:
    """One process each: the exit codes and streams that a shell sees."""
    good = subprocess.run(
        [*PROGRAM, "simulate", "--protocols", "isolated", *SMALL, "--json"], capture_output=True, text=True, timeout=300
    )
    assert good.returncode == 0
    assert json.loads(good.stdout)["curves"][0]["name"] == "isolated"
    bad = subprocess.run([*PROGRAM, "plan", "--epsilon", "-1"], capture_output=True, text=True, timeout=300)
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr == "error: epsilon must be a finite number > 0, got -1.0\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OverflowError("int too large"), "too large: int too large"),
        (RecursionError(), "too large: RecursionError"),
        (sqlite3.OperationalError("unable to open database file"), "the store cannot be used: unable to open"),
    ],
)
def test_what_a_command_cannot_hold_is_one_line(
    error: Exception, said: str, fedbandit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fails)
    assert_refused(fedbandit("plan"), said)


def test_a_database_that_is_away_is_one_line(fedbandit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")

    def fails(**options: object) -> None:
        raise psycopg.OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(cli, "app", fails)
    assert_refused(fedbandit("plan"), "the database cannot be used: connection refused")


def test_one_action_leaves_nothing_to_lose(fedbandit: Command) -> None:
    assert fedbandit("plan", "--best", "--arms", "1", "--delta", "1e-6").code == 0


def test_help_loads_no_numbers() -> None:
    program = "import sys, fedbandit.cli.main as cli\ntry:\n    cli.main()\nfinally:\n    print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False")


@pytest.mark.parametrize(
    ("typed", "offered"), [("pl", "plan"), ("federation acc", "accept"), ("plan --expl", "--explain")]
)
def test_a_shell_completes_commands_and_options_of_modules_that_are_not_loaded(typed: str, offered: str) -> None:
    words = {"COMP_WORDS": f"fedbandit {typed}", "COMP_CWORD": str(len(typed.split()))}
    asked = {**os.environ, **words, "_FEDBANDIT_COMPLETE": "complete_bash"}
    program = "import sys; sys.argv = ['fedbandit']; from fedbandit.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == [offered]


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "fedbandit", "--version"], capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("fedbandit 0.")
