"""The officer's commands as they are typed."""

from __future__ import annotations

import typer
from typer.testing import CliRunner, Result

from fedbandit.cli.officer.attack_command import attack
from fedbandit.cli.officer.audit_command import audit
from fedbandit.cli.officer.certificate_command import certificate
from fedbandit.cli.officer.ledger_command import ledger

app = typer.Typer()
for command in (audit, attack, ledger, certificate):
    app.command()(command)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
