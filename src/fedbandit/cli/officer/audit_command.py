"""`fedbandit audit`: try to break a protocol by name, the plan in a file, or all protocols; simulated or live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.audit import report as reports_of
from fedbandit.audit.auditor import CONFIDENCE, cores
from fedbandit.audit.cases import AUDITED, Case, case, reduced
from fedbandit.audit.report import PROVES, REFUTES, Report
from fedbandit.baselines import BASELINES
from fedbandit.cli import options, output
from fedbandit.cli.plan_file import read_plan
from fedbandit.plan import Plan
from fedbandit.presets import NAMES
from fedbandit.privacy.budget import exactly

__all__ = ["audit", "audited", "live_case_of"]

EPSILON, DELTA = 1.0, 1e-5
KNOWN = (*dict.fromkeys((*NAMES, *AUDITED, *BASELINES)),)
PLANS = (".toml", ".json")  # a name with such an ending is taken for a plan's file


def audit(
    name: Annotated[str | None, typer.Argument(help=f"A protocol ({', '.join(KNOWN)}) or a plan's file.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help=f"Budget of a protocol, {EPSILON:g} by default; a plan has its own.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help=f"Delta of a protocol, {DELTA:g} by default; a plan has its own.")
    ] = None,
    trials: options.Trials = None,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    live: Annotated[bool, typer.Option("--live", help="Run real stores, live noise and sealed messages.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Audit every protocol, and the live ones live too.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if the verdict is broken.")] = False,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Try to break a protocol: run it in two neighbouring worlds, bound epsilon from below, test the noise."""
    if (name is None) != every:
        raise ArgumentError("name", "must be a protocol or a plan's file, or else --all must be given")
    if every and live:
        raise ArgumentError("--live", "must not be given with --all, which audits the live path too")
    if name is None:
        reports = _audit_all(*_budget(epsilon, delta), trials, seed, workers)
        output.print_json({"audits": [_line(report) for report in reports]}) if json else _show_all(reports)
    else:
        reports = [audited(_chosen(name, epsilon, delta, live), trials, seed, workers)]
        output.print_json(reports[0].as_dict()) if json else _show(reports[0])
    if strict and any(report.verdict == "broken" for report in reports):
        raise typer.Exit(1)


def audited(chosen: Case, trials: int | None, seed: int, workers: int | None) -> Report:
    """The audit of a case, with a bar on standard error while it runs."""
    with output.progress_bar(f"auditing {chosen.name}") as progress:
        return reports_of.audit(chosen, trials, seed, _processes(workers), progress)


def _budget(epsilon: float | None, delta: float | None) -> tuple[float, float]:
    return EPSILON if epsilon is None else epsilon, DELTA if delta is None else delta


def _chosen(name: str, epsilon: float | None, delta: float | None, live: bool) -> Case:
    if name not in KNOWN and (Path(name).exists() or Path(name).suffix in PLANS):
        for option, given in (("--epsilon", epsilon), ("--delta", delta)):
            if given is not None:
                raise ArgumentError(
                    option, f"must not be given with a plan, which has its own budget; got {exactly(given)}"
                )
        plan = read_plan(Path(name))
        return live_case_of(plan) if live else reduced(plan)
    budget = _budget(epsilon, delta)
    if not live:
        return case(name, *budget)
    from fedbandit.audit.live_game import live_case

    return live_case(name, *budget)


def live_case_of(plan: Plan) -> Case:
    """The case of a plan on the live path; imported here, because it needs the packages of a live party."""
    from fedbandit.audit.live_game import live_reduced

    return live_reduced(plan)


def _audit_all(epsilon: float, delta: float, trials: int | None, seed: int, workers: int | None) -> list[Report]:
    from fedbandit.audit.live_game import LIVE, live_case

    cases = [case(name, epsilon, delta) for name in AUDITED] + [live_case(name, epsilon, delta) for name in LIVE]
    with output.progress_bar("auditing everything") as progress:
        return reports_of.audit_all(cases, trials, seed, _processes(workers), progress)


def _processes(workers: int | None) -> int:
    return cores() if workers is None else _validate.count("workers", workers)


def _line(report: Report) -> dict[str, Any]:
    """A short form of an audit, for the list of all of them."""
    known = report.as_dict()
    return {**{key: known[key] for key in ("name", "verdict", "epsilon_lower", "claimed")}, "live": report.live}


def _show_all(reports: list[Report]) -> None:
    rows = [
        [
            report.name,
            "live" if report.live else "",
            report.verdict,
            output.number(report.epsilon_lower),
            "-" if report.claim is None else exactly(report.claim.epsilon),
        ]
        for report in reports
    ]
    title = f"All protocols ({CONFIDENCE:.0%} confidence each)"
    output.print_table(title, ["name", "path", "verdict", "epsilon at least", "claimed"], rows)
    for report in reports:
        for text in report.failed:
            output.remark(f"{report.name}: {text}.")


def _show(report: Report) -> None:
    claim = report.claim
    allowed = f"asked for {exactly(report.budget[0])}" if claim is None else f"claimed {exactly(claim.epsilon)}"
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
    if report.smaller_claim is not None:
        output.remark(f"claim for the plan as it was audited: {report.smaller_claim.statement}")
    output.remark(f"audited: {report.described}; {counted(report.trials, 'run')} of each world, seed {report.seed}.")
    if report.cut:
        output.remark(f"cut from the plan, so that it can be run many times: {report.cut}.")
    for kind in dict.fromkeys(finding.bound for finding in report.findings):
        output.remark(f"bound {kind}: if it is above the claim, it {REFUTES[kind]}.")
    for check in report.checks:
        outcome = "as claimed" if not check.failed else "; ".join(check.failed)
        named = check.what if check.what.startswith(check.kind) else f"{check.kind}, {check.what}"
        output.remark(f"{named}, {counted(check.tests, 'test')}: {outcome}.")
    for what in dict.fromkeys(check.kind for check in report.checks if check.failed):
        output.remark(f"a failed test of {what} proves: {PROVES[what]}.")
