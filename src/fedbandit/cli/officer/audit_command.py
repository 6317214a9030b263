"""`fedbandit audit`: try to break a protocol by name, or the plan in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbandit import _validate
from fedbandit.audit import report as reports
from fedbandit.audit.auditor import CONFIDENCE, cores
from fedbandit.audit.cases import Case, case, reduced
from fedbandit.audit.report import REFUTES, Report
from fedbandit.cli import options, output
from fedbandit.cli.plan_file import read_plan
from fedbandit.presets import NAMES

__all__ = ["audit", "audited"]


def audit(
    name: Annotated[str, typer.Argument(help=f"A protocol ({', '.join(NAMES)}) or the file of a plan.")],
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    trials: options.Trials = None,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if the verdict is broken.")] = False,
    json: options.Json = False,
) -> None:
    """Try to break a protocol: run it in two neighbouring worlds and bound epsilon from below."""
    is_file = name not in NAMES and Path(name).exists()
    chosen = reduced(read_plan(Path(name))) if is_file else case(name, epsilon, delta)
    report = audited(chosen, trials, seed, workers)
    if json:
        output.print_json(report.as_dict())
    else:
        _show(report)
    if strict and report.verdict == "broken":
        raise typer.Exit(1)


def audited(chosen: Case, trials: int | None, seed: int, workers: int | None) -> Report:
    """The audit of a case, with a bar on standard error while it runs."""
    processes = cores() if workers is None else _validate.count("workers", workers)
    with output.progress_bar(f"auditing {chosen.name}") as progress:
        return reports.audit(chosen, trials, seed, processes, progress)


def _show(report: Report) -> None:
    claim = report.claim
    allowed = f"asked for {report.budget[0]:g}" if claim is None else f"claimed {claim.epsilon:g}"
    rows = [
        [f.adversary, f"{f.hits / f.trials:.4f}", f"{f.alarms / f.trials:.4f}", output.number(f.epsilon_lower)]
        for f in report.findings
    ]
    output.print_table(
        f"{report.name}: {report.verdict}. Epsilon is at least {output.number(report.epsilon_lower)} ({allowed}, "
        f"{CONFIDENCE:.0%} confidence)",
        ["adversary", "says 1 in world 1", "says 1 in world 0", "epsilon at least"],
        rows,
    )
    output.remark(f"claim: {'nobody claims anything for it.' if claim is None else claim.statement}")
    output.remark(f"audited: {report.described}; {report.trials:,} runs of each world, seed {report.seed}.")
    for kind in dict.fromkeys(finding.bound for finding in report.findings):
        output.remark(f"bound {kind}: {REFUTES[kind]}.")
