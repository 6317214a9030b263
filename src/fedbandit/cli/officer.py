"""A privacy officer's commands: `audit`, `attack`, `ledger`, `certificate`."""

from __future__ import annotations

import json as json_format
import sqlite3
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedbandit import _validate
from fedbandit.audit import attacks
from fedbandit.audit.auditor import CONFIDENCE, cores
from fedbandit.audit.certificate import certificate as certify
from fedbandit.audit.pages import html, markdown
from fedbandit.audit.reduced import audited
from fedbandit.audit.report import REFUTES, Report
from fedbandit.audit.report import audit as run_audit
from fedbandit.audit.subjects import Subject, subject
from fedbandit.cli import options, output
from fedbandit.plan import Plan
from fedbandit.planner.catalogue import NAMES
from fedbandit.privacy.ledger import Entry, LedgerError, event_from_json, from_json, verify
from fedbandit.privacy.spending import Spent, spent
from fedbandit.protocol import mechanisms

Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Trials = Annotated[int | None, typer.Option(help="Runs in each of the two worlds; by default what the protocol needs.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one a core. They do not change the result.")]
SQLITE = b"SQLite format 3\x00"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (audit, attack, ledger, certificate):
        app.command()(command)


def audit(
    name: Annotated[str, typer.Argument(help=f"A protocol ({', '.join(NAMES)}) or the file of a plan.")],
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    trials: Trials = None,
    seed: Seed = 0,
    workers: Workers = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if the verdict is broken.")] = False,
    json: options.Json = False,
) -> None:
    """Try to break a protocol: run it in two neighbouring worlds and bound epsilon from below."""
    chosen = (
        subject(name, epsilon, delta) if name in NAMES or not Path(name).exists() else audited(read_plan(Path(name)))
    )
    report = _audited(chosen, trials, seed, workers)
    if json:
        output.print_json(report.as_dict())
    else:
        _show(report)
    if strict and report.verdict == "broken":
        raise typer.Exit(1)


def attack(
    name: Annotated[str | None, typer.Argument(help="The attack to run; without one, all are listed.")] = None,
    trials: Trials = None,
    seed: Seed = 0,
    json: options.Json = False,
) -> None:
    """Attacks as worked examples: what each finds out without its defence, and with it."""
    if name is None:
        _list_attacks(json)
        return
    chosen = attacks.attack(name)
    _validate.count("seed", seed, least=0)
    runs = chosen.trials if trials is None else _validate.count("trials", trials, least=2)
    measured = chosen.run(runs, np.random.default_rng(seed))
    if json:
        output.print_json({"name": name, "title": chosen.title, "defence": chosen.defence, **measured._asdict()})
        return
    rows = [["without the defence", f"{measured.exposed:.4f}"], ["with it", f"{measured.defended:.4f}"]]
    rows.append(["what the defence allows", f"{measured.limit:.4f}"])
    output.print_table(f"{chosen.title} ({measured.trials:,} trials, seed {seed})", ["", measured.measure], rows)
    for label, text in _story(chosen).items():
        output.stdout.print(f"{label}: {text}.", highlight=False, soft_wrap=True)


def ledger(
    file: Annotated[Path, typer.Argument(help="A ledger: one JSON entry a line, or a silo's SQLite database.")],
    head: Annotated[
        str | None, typer.Option(help="The last hash you noted: entries cut off since are noticed.")
    ] = None,
    json: options.Json = False,
) -> None:
    """What has been spent and what is left, from the hash chain of a silo's releases."""
    entries = read_ledger(file)
    verify(entries, head)
    total = spent(entries, mechanisms.encoder)
    last = entries[-1].hash if entries else None
    if json:
        output.print_json(_spent_dict(total, len(entries), last))
        return
    _show_ledger(total, len(entries), last)


def certificate(
    plan: Annotated[Path, typer.Argument(help="A plan as JSON or TOML, as `Plan.as_dict` writes it.")],
    out: Annotated[Path, typer.Option(help="Folder for the page, as Markdown and as HTML.")] = Path(),
    trials: Trials = None,
    seed: Seed = 0,
    workers: Workers = None,
) -> None:
    """One page for a privacy officer: the promise, its proof, the audit, and what is not promised."""
    planned = read_plan(plan)
    folder = output.writable_folder(out)
    report = _audited(audited(planned), trials, seed, workers)
    page = certify(planned, report, datetime.now(UTC).date())
    written = {".md": markdown(page), ".html": html(page)}
    for ending, text in written.items():
        (folder / f"{plan.stem}.certificate{ending}").write_text(text, encoding="utf-8")
    typer.echo(written[".md"])
    output.remark(f"written: {', '.join(str(folder / f'{plan.stem}.certificate{ending}') for ending in written)}")


# -- reading -----------------------------------------------------------------------------------------------------------


def read_plan(path: Path) -> Plan:
    """A plan from JSON or TOML; one line says what is wrong with it."""
    text = _text(path)
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else json_format.loads(text)
    except ValueError as error:
        raise ValueError(f"plan must be JSON or TOML, {str(path)!r} is not: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"plan must be a table of fields, got {type(data).__name__}")
    try:
        return Plan.from_dict(data)
    except TypeError as error:
        raise ValueError(f"plan cannot be read: {error}") from None


def read_ledger(path: Path) -> list[Entry]:
    """Entries of a ledger, not yet verified; an event that is not known is refused, and its line named."""
    if _bytes(path).startswith(SQLITE):
        return _from_database(path)
    entries = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.strip():
            try:
                entries.append(from_json(line))
            except LedgerError as error:
                raise LedgerError(f"line {number}: {error}") from None
    return entries


def _from_database(path: Path) -> list[Entry]:
    """The ledger of a silo's own store, opened for reading only."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT previous, event, hash FROM ledger ORDER BY number").fetchall()
    except sqlite3.Error as error:
        raise LedgerError(f"file must be a silo's database, {str(path)!r} is not: {error}") from None
    return [Entry(previous, event_from_json(event), hash_) for previous, event, hash_ in rows]


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError:
        raise ValueError(f"file must be text, {str(path)!r} is not") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"file must be readable, got {str(path)!r} ({error.strerror})") from None


# -- showing -----------------------------------------------------------------------------------------------------------


def _audited(chosen: Subject, trials: int | None, seed: int, workers: int | None) -> Report:
    processes = cores() if workers is None else _validate.count("workers", workers)
    with output.progress_bar(f"auditing {chosen.name}") as progress:
        return run_audit(chosen, trials, seed, processes, progress)


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


def _story(chosen: attacks.Attack) -> dict[str, str]:
    return {
        "Adversary": chosen.adversary,
        "Learns": chosen.learns,
        "Defence": chosen.defence,
        "Remains": chosen.remains,
    }


def _list_attacks(json: bool) -> None:
    known = {name: attacks.attack(name) for name in attacks.names()}
    if json:
        output.print_json({"attacks": [{"name": name, "title": a.title, **_story(a)} for name, a in known.items()]})
        return
    rows = [[name, a.title, a.defence] for name, a in known.items()]
    output.print_table("fedbandit attack NAME runs one of them", ["name", "what", "defence"], rows)


def _spent_dict(total: Spent, entries: int, last: str | None) -> dict[str, Any]:
    rows = [
        {
            "term": term.term,
            "plan": term.plan,
            "trust": term.trust,
            "released": term.released,
            "steps": term.steps,
            "redrawn": list(term.redrawn),
            "mu": term.mu,
            "spent": {"epsilon": term.epsilon, "delta": term.budget[1]},
            "budget": {"epsilon": term.budget[0], "delta": term.budget[1]},
            "left": term.left,
            "overspent": term.overspent,
        }
        for term in total.terms
    ]
    together = {"epsilon": total.epsilon, "delta": total.delta}
    return {"entries": entries, "head": last, "terms": rows, "spent": together}


def _show_ledger(total: Spent, entries: int, last: str | None) -> None:
    rows = []
    for term in total.terms:
        budget = f"({term.budget[0]:g}, {term.budget[1]:g})"
        done = f"{term.released} of {term.steps}"
        rows.append(
            [str(term.term), term.plan[:12], term.trust, done, budget, f"{term.epsilon:.4g}", f"{term.left:.4g}"]
        )
    columns = ["term", "plan", "trust", "releases", "budget", "spent", "left"]
    output.print_table(f"{entries} entries, chain intact, head {(last or 'none')[:16]}", columns, rows)
    output.remark(f"a user in every term has spent epsilon = {total.epsilon:.4g} at delta = {total.delta:g}.")
    for term in total.terms:
        if term.redrawn:
            steps = ", ".join(map(str, term.redrawn))
            output.remark(f"term {term.term}: step(s) {steps} drawn more than once, counted as often as drawn.")
        if term.overspent:
            output.remark(f"term {term.term}: more was spent than planned.")
