"""`fedbandit ledger`: what a silo has spent, from the hash chain of its releases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit.cli import options, output
from fedbandit.cli.plan_file import read_bytes, read_text
from fedbandit.privacy.ledger import Entry, LedgerError, event_from_json, from_json, verify
from fedbandit.privacy.spending import Spent, TermSpent, spent
from fedbandit.protocol import mechanisms

__all__ = ["ledger"]

SQLITE = b"SQLite format 3\x00"


def ledger(
    file: Annotated[Path, typer.Argument(help="A ledger: one JSON entry per line, or a silo's SQLite database.")],
    head: Annotated[
        str | None, typer.Option(help="The last hash you noted: entries cut off since are noticed.")
    ] = None,
    json: options.Json = False,
) -> None:
    """What has been spent and what is left, from the hash chain of a silo's releases."""
    entries = _read(file)
    verify(entries, head)
    total = spent(entries, mechanisms.encoder)
    last = entries[-1].hash if entries else None
    if json:
        together = {"epsilon": total.epsilon, "delta": total.delta}
        terms = [_as_dict(term) for term in total.terms]
        output.print_json({"entries": len(entries), "head": last, "terms": terms, "spent": together})
        return
    _show(total, len(entries), last)


def _read(path: Path) -> list[Entry]:
    """Entries of a ledger, not yet verified; an event that is not known is refused, and its line named."""
    if read_bytes(path).startswith(SQLITE):
        return _from_database(path)
    entries = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
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


def _as_dict(term: TermSpent) -> dict[str, Any]:
    return {
        "term": term.term,
        "plan": term.plan,
        "trust": term.trust,
        "released": term.released,
        "syncs": term.syncs,
        "redrawn": list(term.redrawn),
        "mu": term.mu,
        "spent": {"epsilon": term.epsilon, "delta": term.budget[1]},
        "budget": {"epsilon": term.budget[0], "delta": term.budget[1]},
        "left": term.left,
        "overspent": term.overspent,
    }


def _show(total: Spent, entries: int, last: str | None) -> None:
    columns = ["term", "plan", "trust", "releases", "budget", "spent", "left"]
    title = f"{entries} entries, chain intact, head {(last or 'none')[:16]}"
    output.print_table(title, columns, [_row(term) for term in total.terms])
    output.remark(f"a user in every term has spent epsilon = {total.epsilon:.4g} at delta = {total.delta:g}.")
    for term in total.terms:
        if term.redrawn:
            syncs = ", ".join(map(str, term.redrawn))
            output.remark(f"term {term.term}: sync(s) {syncs} drawn more than once, counted as often as drawn.")
        if term.overspent:
            output.remark(f"term {term.term}: more was spent than planned.")


def _row(term: TermSpent) -> list[str]:
    done = f"{term.released} of {term.syncs}"
    budget = f"({term.budget[0]:g}, {term.budget[1]:g})"
    return [str(term.term), term.plan[:12], term.trust, done, budget, f"{term.epsilon:.4g}", f"{term.left:.4g}"]
