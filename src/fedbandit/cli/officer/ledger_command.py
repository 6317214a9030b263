"""`fedbandit ledger`: what a silo has spent, from the hash chain of its releases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit.cli import options, output
from fedbandit.cli.plan_file import read_bytes, read_text
from fedbandit.privacy.ledger import Checks, Entry, LedgerError, event_from_json, from_json, verify
from fedbandit.privacy.spending import Spent, TermSpent, spent
from fedbandit.protocol import mechanisms

__all__ = ["ledger"]

SQLITE = b"SQLite format 3\x00"
SIGNATURE_BYTES = 64


def ledger(
    file: Annotated[Path, typer.Argument(help="A ledger: one JSON entry per line, or a silo's SQLite database.")],
    head: Annotated[
        str | None, typer.Option(help="The last hash you noted: entries cut off since are noticed.")
    ] = None,
    federation: Annotated[
        Path | None, typer.Option(help="The agreed federation file: entries must be signed by the silo's key in it.")
    ] = None,
    witness: Annotated[
        list[Path] | None,
        typer.Option(help="The store of a mixer or an analyzer: the ledger must contain the head they have seen."),
    ] = None,
    json: options.Json = False,
) -> None:
    """What has been spent and what is left, from the signed hash chain of a silo's releases.

    The chain alone shows that entries were not altered one by one. With the federation file, that the silo wrote them
    all; with a witness, that it has not rewritten or lost what it had sent by then. A silo can still add entries, which
    say that it spent more, and nobody can see a release that it never sent to anybody.
    """
    entries = _read(file)
    silo = entries[0].event.silo if entries else None
    signed = None if federation is None or silo is None else _signature_of(federation, silo)
    seen = [_witnessed(store, silo) for store in witness or [] if silo is not None]
    verify(entries, head, signed=signed, witnessed=seen)
    checked = [*(["signed by the silo"] if signed else []), *(f"seen by others up to entry {n}" for n, _ in seen)]
    total = spent(entries, mechanisms.encoder)
    last = entries[-1].hash if entries else None
    if json:
        together = {"epsilon": total.epsilon, "delta": total.delta}
        terms = [_as_dict(term) for term in total.terms]
        checks = {"signatures": signed is not None, "witnessed": [number for number, _ in seen]}
        output.print_json({"entries": len(entries), "head": last, **checks, "terms": terms, "spent": together})
        return
    _show(total, len(entries), last, checked)


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
            rows = database.execute("SELECT previous, event, hash, signature FROM ledger ORDER BY number").fetchall()
    except sqlite3.Error as error:
        raise LedgerError(f"file must be a silo's database, {str(path)!r} is not: {error}") from None
    return [Entry(previous, event_from_json(event), hash_, signature) for previous, event, hash_, signature in rows]


def _signature_of(path: Path, silo: str) -> Checks:
    """The check of the silo's signature by its public key in the federation file."""
    from fedbandit.federation.setup.agreement import Agreement  # imported late: it loads the live federation
    from fedbandit.federation.wire.heads import Head

    verifier = Agreement.load(path).party(silo).verifier

    def check(number: int, hash_: bytes, signature: bytes) -> bool:
        return len(signature) == SIGNATURE_BYTES and Head(number, hash_, signature).is_of(silo, verifier)

    return check


def _witnessed(path: Path, silo: str) -> tuple[int, str]:
    """How many entries of the silo's ledger a mixer or an analyzer has seen, and the last hash then."""
    from fedbandit.federation.store import read_engine
    from fedbandit.federation.store.seen import SeenStore

    if not path.exists():
        raise LedgerError(f"witness must be the store of a mixer or an analyzer, {str(path)!r} is not there")
    engine = read_engine(path)
    try:
        head = SeenStore(engine, "").of(silo).head
    except sqlite3.Error as error:
        raise LedgerError(f"witness must be the store of a mixer or an analyzer: {error}") from None
    finally:
        engine.close()
    return head.length, head.hash.hex()


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


def _show(total: Spent, entries: int, last: str | None, checked: list[str]) -> None:
    columns = ["term", "plan", "trust", "releases", "budget", "spent", "left"]
    title = f"{entries} entries, {', '.join(['chained', *checked])}, head {(last or 'none')[:16]}"
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
