"""Checks of a party's store: its format, whether it is intact, the plan that it began with, and its last clock time."""

from __future__ import annotations

from collections.abc import Iterator

from fedbandit.federation.doctor.findings import Diagnosis, fails, fine, warns
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import Home
from fedbandit.federation.setup.roll import binding_key
from fedbandit.federation.silo.silo_status import PROBLEM
from fedbandit.federation.silo.ticker import CLOCK
from fedbandit.federation.store import Engine, SiloStore, SyncStore, read_engine
from fedbandit.federation.store.database import recall
from fedbandit.federation.store.opening import begun, check_owner
from fedbandit.federation.store.schema import EARLIER, FORMAT
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.timing import JUMP, MachineClocks, Reading
from fedbandit.federation.wire.envelopes import FORMAT as WIRE
from fedbandit.federation.wire.heads import Greeting

__all__ = ["store"]


def store(home: Home) -> Iterator[Diagnosis]:
    """All checks of the store. They change nothing."""
    agreement = home.agreement()
    place = home.store(agreement.plan.hash)
    if not begun(place):
        yield warns("store", f"there is none at {_shown(place)}: the party was never started", "start the party")
        return
    engine = read_engine(place)
    try:
        found = list(_whole(engine, place))
        yield from found
        if any(one.level != "ok" for one in found):
            return  # this version may not be able to read its tables
        check_owner(engine, home.owner)
        yield from _bound(engine, agreement)
        if home.settings.role == "silo":
            yield from _silo(SiloStore(engine), engine)
        else:
            yield from _said(SyncStore(engine).problem())
    finally:
        engine.close()


def _whole(engine: Engine, place: str) -> Iterator[Diagnosis]:
    if "://" not in place:
        with engine.read() as sql:
            words = [word for (word,) in sql.all("PRAGMA quick_check(5)")]
        if words != ["ok"]:
            yield fails("store", f"{place} is damaged: {words[0]}", "put the newest whole copy in its place")
            return
    found = (recall(engine, "format") or b"").decode()
    if found != FORMAT:
        if found in EARLIER:
            do = "back it up with that version, then start the party: docs/upgrading.md lists the formats it can read"
            yield warns("store format", f"{found}, written by fedbandit {EARLIER[found]}; this one has {FORMAT}", do)
            return
        says = f"{found or 'unknown'}, written by another version of fedbandit; this one has {FORMAT}"
        yield fails("store format", says, "install the version that wrote it")
        return
    yield fine("store", f"{_shown(place)} is intact and has format {FORMAT}")


def _shown(place: str) -> str:
    return place.rpartition("@")[2]  # without a database password


def _bound(engine: Engine, agreement: Agreement) -> Iterator[Diagnosis]:
    """Check that the federation's file is the one that the store began with."""
    plan, bound = agreement.plan.hash, agreement.bond
    found = recall(engine, binding_key(plan))
    if found is None:
        do = "put the federation's file of this term back; to begin a new term, use `silo serve --new-term`"
        yield fails("plan", f"the store does not know plan {plan[:16]} of the federation's file", do)
    elif found.decode() != bound:
        do = "put back the file that all others have, with its fingerprint: `fedbandit federation accept`"
        yield fails("plan", "keys, members or times in the federation's file have changed since the term began", do)
    else:
        yield fine("plan", f"{plan[:16]}, the plan that the store began with")


def _silo(silo: SiloStore, engine: Engine) -> Iterator[Diagnosis]:
    terms = silo.terms()
    if not terms:
        return
    term = terms[-1]
    yield from _clock(silo.state(term.number, CLOCK))
    yield from _said((silo.state(term.number, PROBLEM) or b"").decode() or None)
    for name, answer in SeenStore(engine, term.plan_hash[:16]).answers().items():
        greeting = Greeting.decode(answer)
        oldest, newest = greeting.oldest, greeting.newest
        reads = f"format {newest}" if oldest == newest else f"formats {oldest} to {newest}"
        says = f"{name} reads {reads}; this version writes {WIRE}"
        if greeting.reads(WIRE):
            yield fine("versions", says)
        else:
            yield fails("versions", says, "upgrade the older of the two; until then no release is drawn")


def _clock(stored: bytes | None) -> Iterator[Diagnosis]:
    """Compare the machine's clock with the last reading that the silo stored."""
    if stored is None:
        return
    last, now = Reading.decode(stored), MachineClocks().read()
    passed = now.steady - last.steady if now.boot == last.boot != "" else None
    off = now.wall - last.wall - (passed if passed is not None else max(0.0, now.wall - last.wall))
    do = "correct the clock (chronyc, timedatectl); if it is right now, use `fedbandit silo serve --catch-up`"
    if abs(off) > JUMP:
        yield fails("clock", f"off by {off:+.0f} s from the time expected by the store's last reading", do)
    else:
        yield fine("clock", "agrees with the store's last reading")


def _said(problem: str | None) -> Iterator[Diagnosis]:
    if problem is not None:
        yield fails("syncs", problem, "docs/operating.md says what each kind means")
