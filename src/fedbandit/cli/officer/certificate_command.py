"""`fedbandit certificate`: one page for a privacy officer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedbandit.audit import certificate as certificates
from fedbandit.audit.cases import reduced
from fedbandit.audit.pages import html, markdown
from fedbandit.cli import options, output
from fedbandit.cli.officer.audit_command import audited, live_case_of
from fedbandit.cli.plan_file import read_plan

__all__ = ["certificate"]

WRITERS = {".md": markdown, ".html": html}


def certificate(
    plan: Annotated[Path, typer.Argument(help="A plan as JSON or TOML, as `Plan.as_dict` writes it.")],
    out: Annotated[Path, typer.Option(help="Folder for the page, as Markdown and as HTML.")] = Path(),
    trials: options.Trials = None,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    live: Annotated[bool, typer.Option("--live", help="Audit the live path too, with its own trials.")] = False,
) -> None:
    """One page for a privacy officer: the promise, its proof, the audit, and what is not promised."""
    planned = read_plan(plan)
    folder = output.writable_folder(out)
    budgeted = planned.privacy is not None
    report = audited(reduced(planned), trials, seed, workers) if budgeted else None
    on_the_live_path = audited(live_case_of(planned), None, seed, workers) if live and budgeted else None
    page = certificates.certificate(planned, report, datetime.now(UTC).date(), on_the_live_path)
    texts = {folder / f"{plan.stem}.certificate{ending}": write(page) for ending, write in WRITERS.items()}
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    output.say(markdown(page))
    output.remark(f"written: {', '.join(map(str, texts))}")
