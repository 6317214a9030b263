"""`fedbandit ledger`: what a silo has spent, from the hash chain of its releases."""

from __future__ import annotations

import json as json_text
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit._validate import is_postgres
from fedbandit.cli import checks, options, output
from fedbandit.cli.plan_file import read_bytes, read_text
from fedbandit.privacy.budget import at_most, exactly
from fedbandit.privacy.ledger import (
    Checks,
    Entry,
    LedgerError,
    check_end,
    entries_since,
    from_columns,
    from_json,
    numbers,
    to_json,
    verify,
)
from fedbandit.privacy.spending import Spent, TermSpent, spent
from fedbandit.protocol import mechanisms

__all__ = ["ledger"]

SQLITE = b"SQLite format 3\x00"


def ledger(
    file: Annotated[
        str, typer.Argument(help="A ledger: one JSON entry per line, or a silo's SQLite file or postgresql:// URL.")
    ],
    head: Annotated[
        str | None,
        typer.Option(help="The head that you noted earlier: entries that were cut off or rewritten since are noticed."),
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(
            help="The agreed federation file: entries must be signed by the silo's key in it, or in the files of"
            " earlier terms beside it."
        ),
    ] = None,
    witness: Annotated[
        list[Path] | None,
        typer.Option(help="The store of a mixer or an analyzer: the ledger must contain the head that it has seen."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new file for the entries alone, one per line, for somebody who must not have the store."),
    ] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """What has been spent and what is left, from the signed hash chain of a silo's releases.

    The chain alone shows that no entry was altered by itself. The federation file also shows that the silo wrote all of
    them. A witness also shows that the silo has neither rewritten nor lost what it had sent by then. There is one
    exception: a silo that has lost a copy and says so gives up as many entries as were lost, each at its cost. A silo
    can still add entries, which say that it spent more, and nobody can see a release that it never sent to anybody.
    """
    entries = _read(file)
    silo = entries[0].event.silo if entries else None
    since = None if head is None else entries_since(entries, head)
    signed = None if federation is None or silo is None else _signature_of(federation, silo, file)
    seen = [_witnessed(store, silo) for store in witness or [] if silo is not None]
    verify(entries, signed=signed, witnessed=seen)
    if out is not None:
        with checks.writing("out", out, "new file"), out.open("x", encoding="utf-8") as lines:
            lines.writelines(f"{to_json(entry)}\n" for entry in entries)
    checked = [*(["signed by the silo"] if signed else []), *(f"seen by others up to entry {n}" for n, _ in seen)]
    if since is not None:
        checked.append(f"{since} since the head you noted")
    total, length = spent(entries, mechanisms.encoder), numbers(entries)[-1] if entries else 0
    last, clear = entries[-1].hash if entries else None, _in_the_clear(file)
    if json:
        epsilon = math.inf if clear else total.epsilon
        together = {"epsilon": epsilon, "delta": total.delta, "adjacency": total.adjacency}
        terms = [_as_dict(term) for term in total.terms]
        verified = {"signatures": signed is not None, "witnessed": [number for number, _ in seen], "since_head": since}
        output.print_json(
            {
                "entries": length,
                "head": last,
                **verified,
                "terms": terms,
                "in_the_clear": clear,
                "spent": together,
            }
        )
        return
    gone = sum(entry.left_out for entry in entries)
    if gone:
        checked.append(f"{gone} no longer kept, for which later ones stand")
    _show(total, length, last, checked, clear)


def _read(file: str) -> list[Entry]:
    """The entries of a ledger, not yet verified; an unknown event is refused with the number of its line."""
    if _is_store(file):
        return _from_database(file)
    path = Path(file)
    entries: list[Entry] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            try:
                entries.append(from_json(line))
            except LedgerError as error:
                raise LedgerError(f"{path}, line {number}: {error}") from None
    if not entries:
        raise LedgerError(f"file must hold a ledger, {str(path)!r} holds no entry")
    return entries


def _is_store(file: str) -> bool:
    """Whether this is a silo's own store, and not a file that holds a ledger and nothing else."""
    return is_postgres(file) or read_bytes(Path(file)).startswith(SQLITE)


@contextmanager
def _asked(file: str) -> Iterator[Callable[[str], list[Any]]]:
    """What answers queries about a silo's own store, which is opened for reading only."""
    if is_postgres(file):
        from fedbandit.federation.store import read_engine  # late: it loads the live federation

        with closing(read_engine(file)) as engine, engine.read() as sql:
            yield sql.all
        return
    with closing(sqlite3.connect(f"{Path(file).resolve().as_uri()}?mode=ro", uri=True)) as database:
        yield lambda query: database.execute(query).fetchall()


def _named(file: str) -> str:
    """The store as messages name it: without the password that a URL may hold."""
    return repr(file if not is_postgres(file) else f"postgresql://...@{file.rpartition('@')[2]}")


def _from_database(file: str) -> list[Entry]:
    """The ledger of a silo's own store."""
    try:
        with _asked(file) as ask:
            last = _last_spent(file, ask)  # first: the silo may be drawing
            rows = ask("SELECT number, previous, event, hash, signature FROM ledger ORDER BY number")
            begun = bool(rows) or _is_of_silo(ask)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message about a damaged file may not be text
        raise LedgerError(f"file must be a silo's database, {_named(file)} is not: {error}") from None
    if not begun:
        raise LedgerError(f"file must be a silo's database, {_named(file)} is not: no term was ever begun in it")
    entries = from_columns(rows)
    check_end(entries, last)
    return entries


def _last_spent(file: str, ask: Callable[[str], list[Any]]) -> tuple[int, int] | None:
    """Term and sync of the last release that must have an entry, if the store has releases at all."""
    from fedbandit.federation.store.silo_store import last_spent  # late: it loads the live federation

    if not is_postgres(file) and not ask("SELECT 1 FROM sqlite_master WHERE name = 'releases'"):
        return None
    try:
        return last_spent(ask)
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable_plans(file, error) from None


def _unreadable_plans(file: str, error: Exception) -> LedgerError:
    return LedgerError(f"the plans of the terms in {_named(file)} cannot be read: {error!r}")


def _in_the_clear(file: str) -> list[int] | None:
    """Terms of a silo's store that released sums under a plan without a budget: the ledger has no entry of them. A file
    that holds a ledger and nothing else does not tell: None."""
    if not _is_store(file):
        return None
    try:
        with _asked(file) as ask:
            if not is_postgres(file) and not ask("SELECT 1 FROM sqlite_master WHERE name = 'releases'"):
                return []
            plans = ask("SELECT term, plan FROM terms WHERE term IN (SELECT term FROM releases) ORDER BY term")
            return [int(term) for term, plan in plans if json_text.loads(plan)["privacy"] is None]
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        raise _unreadable_plans(file, error) from None


def _is_of_silo(ask: Callable[[str], Iterable[Any]]) -> bool:
    """Whether a store is a silo's: only silos begin terms, and they do so when they are opened."""
    return any(True for _ in ask("SELECT 1 FROM terms LIMIT 1"))


def _signature_of(path: Path, silo: str, store: str) -> Checks:
    """A check of the silo's signature by any of its public keys that the operator has signed.

    The keys come from the federation file, from the files of earlier terms and the editions beside it, and from the
    editions in the silo's store.
    """
    from fedbandit.federation.setup.agreement import unknown_party  # late: it loads the live federation
    from fedbandit.federation.setup.home import rolls_of
    from fedbandit.federation.store import read_engine
    from fedbandit.federation.store.database import recall
    from fedbandit.federation.wire.envelopes import SIGNATURE_BYTES
    from fedbandit.federation.wire.heads import Head

    rolls = rolls_of(path)
    if _is_store(store):
        engine = read_engine(store)
        try:
            for roll in rolls:
                roll.tie(lambda key, value: value, partial(recall, engine))
        finally:
            engine.close()
    keys = [known.verifier for roll in rolls for known in roll.keys_of(silo)]
    if not keys:
        raise unknown_party(silo, rolls[0].charter.id)

    def check(number: int, hash_: bytes, signature: bytes) -> bool:
        head = len(signature) == SIGNATURE_BYTES and Head(number, hash_, signature)
        return head is not False and any(head.is_of(silo, key) for key in keys)

    return check


def _witnessed(path: Path, silo: str) -> tuple[int, str]:
    """How many entries of the silo's ledger a mixer or an analyzer has seen, and the hash of the last."""
    from fedbandit.federation.store import read_engine
    from fedbandit.federation.store.seen import SeenStore

    if not path.exists():
        raise LedgerError(f"witness must be the store of a mixer or an analyzer, {str(path)!r} is not there")
    engine = read_engine(path)
    try:
        with engine.read() as sql:
            if _is_of_silo(sql.all):
                raise LedgerError(f"witness must be the store of a mixer or an analyzer, {str(path)!r} is a silo's")
        head = SeenStore(engine, "").of(silo).head
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message about a damaged file may not be text
        raise LedgerError(f"witness must be the store of a mixer or an analyzer: {error}") from None
    finally:
        engine.close()
    return head.length, head.hash.hex()


def _as_dict(term: TermSpent) -> dict[str, Any]:
    return {
        "term": term.term,
        "plan": term.plan,
        "trust": term.trust,
        "adjacency": term.adjacency,
        "against": list(term.against),
        "released": term.released,
        "syncs": term.syncs,
        "redrawn": list(term.redrawn),
        "given_up": list(term.given_up),
        "mu": term.mu,
        "spent": {"epsilon": term.epsilon, "delta": term.delta},
        "budget": {"epsilon": term.budget[0], "delta": term.budget[1]},
        "left": term.left,
        "overspent": term.overspent,
    }


def _show(total: Spent, entries: int, last: str | None, checked: list[str], clear: list[int] | None) -> None:
    columns = ["term", "plan", "trust", "adjacency", "releases", "budget", "spent", "left"]
    title = f"{entries} entries, {', '.join(['chained', *checked])}"
    output.print_table(title, columns, [_row(term) for term in total.terms], wide=("plan", "adjacency"))
    if last is not None:
        output.say(f"head: {last}")  # in full, because --head takes it so
    for term in total.terms:
        for remark in _remarks(term):
            output.remark(f"term {term.term}: {remark}.")
    if clear is None:
        output.remark("a term whose plan has no budget leaves no entries: only the silo's own store shows such terms.")
    for number in clear or []:
        output.remark(
            f"term {number}: its plan has no budget, and its sums left the silo in the clear, without entries."
        )
    if total.converted:
        converted = ", ".join(map(str, total.converted))
        output.remark(f"term(s) {converted} count as replace-one in the total: at most twice the shift of add-remove.")
    spent_something = total.terms or clear
    output.remark(_together(total, clear) if spent_something else "nothing has been released, and nothing spent.")


def _remarks(term: TermSpent) -> Iterator[str]:
    """What to know about a term."""
    yield f"spent against {'; '.join(term.against)}"
    if term.redrawn:
        syncs = ", ".join(map(str, term.redrawn))
        yield f"sync(s) {syncs} drawn more than once, counted as often as drawn"
    if term.given_up:
        syncs = ", ".join(map(str, term.given_up))
        yield f"sync(s) {syncs} drawn in a copy of the store that was lost, given up and counted as spent"
    if not term.syncs:
        yield "it has no end: what is spent grows towards the budget and never beyond it"
    if term.overspent:
        yield "more was spent than planned"


def _together(total: Spent, clear: list[int] | None) -> str:
    who = f"for a user in every term {'of these entries ' if clear is None else ''}({total.adjacency})"
    if clear or not math.isfinite(total.epsilon):
        return f"{who} nothing bounds what was spent."
    return f"{who} no more was spent than epsilon = {at_most(total.epsilon)} at delta = {_delta(total.delta)}."


def _row(term: TermSpent) -> list[str]:
    of = f" of {term.syncs}" if term.syncs else ", no end"
    done, budget = f"{term.released}{of}", f"({exactly(term.budget[0])}, {exactly(term.budget[1])})"
    spent_ = "no bound"
    if math.isfinite(term.epsilon):
        spent_ = f"({at_most(term.epsilon)}, {_delta(term.delta)})"
    left = at_most(term.left) if term.left else "0"
    return [str(term.term), term.plan[:12], term.trust, term.adjacency, done, budget, spent_, left]


def _delta(delta: float) -> str:
    """A delta in a few digits, rounded up; in full if that would give 1."""
    short = at_most(delta, 6)
    return exactly(delta) if float(short) >= 1 else short
