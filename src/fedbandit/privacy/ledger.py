"""What was spent is data: every release is a typed event in a hash chain; `privacy.spending` composes them.

A ledger belongs to one silo. Each entry carries the hash of the entry before it and is signed by the silo. `verify`
notices an entry that was altered, removed or moved, unless all entries after it were rewritten too. To rewrite them
takes the silo's key (`signed`). The silo itself has that key, so it is held to what others have seen: the head of its
ledger travels with each release (`witnessed`). A release that was drawn twice is two events; a release that was sent
again unchanged is no new event. Nothing here reads or writes files: a silo's store and the command line do.

A term without an end has one event per release, too, but each event stands for all before it: the plan fixes what a
release costs, so the last event says what was spent. Older entries of such a term need not be kept
(`Entry.left_out`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

from fedbandit import _validate
from fedbandit.privacy.sensitivity import ADJACENCIES

__all__ = [
    "GENESIS",
    "LOST",
    "ONLY_SUMS",
    "Binomial",
    "Checks",
    "Clear",
    "Cost",
    "Entrusted",
    "Entry",
    "Gaussian",
    "LedgerError",
    "Release",
    "Signs",
    "append",
    "check_end",
    "entries_since",
    "event_from_json",
    "event_to_json",
    "from_columns",
    "from_json",
    "numbers",
    "terms",
    "to_json",
    "verify",
]

GENESIS = "0" * 64  # the previous hash of the first entry
LOST = "lost and given up, not drawn again; others hold the ledger with last hash "  # in the text of a lost release


class LedgerError(ValueError):
    """A ledger that cannot be believed or read; the message says which entry, and why."""


@dataclass(frozen=True)
class Gaussian:
    """An encoded batch with Gaussian noise.

    `sigma` is the noise that nobody who sees the release can take off: the silo's own noise or, where silos share the
    noise, that of the smallest honest cohort. `own_sigma` is the noise of the silo alone, all that is left if everybody
    else colludes. `sensitivity` is the largest shift of one batch sum by one user, in the same unit (Frobenius norm,
    bias and covariance together, all rounds and silos that the user may take part in).
    """

    sigma: float
    own_sigma: float
    sensitivity: float

    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        _as_declared(self)
        for name in ("sigma", "own_sigma", "sensitivity"):
            _validate.positive(name, getattr(self, name))

    @property
    def against(self) -> str:
        """The adversaries against whom no more than this is spent."""
        return "everybody outside the silo" if self.own_sigma >= self.sigma else ONLY_SUMS


@dataclass(frozen=True)
class Binomial:
    """Counts with binomial noise. The theorem behind them composes a whole term at once: the first release spends all
    of (epsilon, delta), and the others spend no more, unless one is drawn again."""

    noise_bits: int
    users: int

    kind: ClassVar[str] = "binomial"

    def __post_init__(self) -> None:
        _validate.count("noise_bits", self.noise_bits)
        _validate.count("users", self.users, least=0)

    @property
    def against(self) -> str:
        """The adversaries against whom no more than this is spent."""
        return ONLY_SUMS


@dataclass(frozen=True)
class Entrusted:
    """An encoded batch without noise, sent to a receiver who is trusted with it and adds Gaussian noise `sigma` before
    anything leaves them. `sensitivity` is as for `Gaussian`. What the receiver publishes is what spends."""

    receiver: str
    sigma: float
    sensitivity: float

    kind: ClassVar[str] = "entrusted"

    def __post_init__(self) -> None:
        _as_declared(self)
        for name in ("sigma", "sensitivity"):
            _validate.positive(name, getattr(self, name))

    @property
    def against(self) -> str:
        """The adversaries against whom no more than this is spent."""
        return f"everybody but the {self.receiver}, which is trusted with the sums and adds the noise"


@dataclass(frozen=True)
class Clear:
    """Sums in the clear, with no noise in them and none added later, or with noise that promises nothing: no number
    bounds what they spend."""

    receiver: str

    kind: ClassVar[str] = "clear"

    def __post_init__(self) -> None:
        _as_declared(self)

    @property
    def against(self) -> str:
        """The adversaries against whom no more than this is spent."""
        return "nobody: the sums left the silo in the clear"


ONLY_SUMS = "the parties that the plan's guarantee is against, who see only sums over silos"
Cost = Gaussian | Binomial | Entrusted | Clear
_COSTS: dict[str, type[Gaussian] | type[Binomial] | type[Entrusted] | type[Clear]] = {
    known.kind: known for known in (Gaussian, Binomial, Entrusted, Clear)
}


@dataclass(frozen=True)
class Release:
    """One release and what it cost: an event of the ledger."""

    silo: str
    plan: str  # hash of the plan
    term: int  # from 1; a new term is a new plan on the same ledger
    trust: str
    mechanism: str
    syncs: int  # the plan's horizon in releases; 0: no end, and the event stands for all before it, too
    sync: int  # which release, from 0: row `sync` of the encoder
    released: str  # what was released, in words
    adjacency: str
    epsilon: float  # the plan's budget for the whole term
    delta: float
    cost: Cost
    visits: int = 1  # visits of one user that count, if they must lie apart; `sensitivity` is then that of one visit
    apart: int = 0  # how many syncs apart they must lie
    forget: float = 1.0  # the weight that one sync leaves to the past in the decoded sums; the encoder depends on it

    def __post_init__(self) -> None:
        _as_declared(self)
        _validate.count("term", self.term)
        _validate.count("syncs", self.syncs, least=0)
        if _validate.count("sync", self.sync, least=0) >= self.syncs and not self.endless:
            raise _validate.ArgumentError(
                "sync", f"must lie below the horizon of {self.syncs} releases, got {self.sync}"
            )
        _validate.one_of("adjacency", self.adjacency, ADJACENCIES)
        _validate.positive("epsilon", self.epsilon)
        _validate.within("delta", self.delta, 0, 1)
        if _validate.positive("forget", self.forget) > 1:
            raise _validate.ArgumentError("forget", f"must be at most 1, got {self.forget!r}")
        _validate.count("visits", self.visits)
        if bool(_validate.count("apart", self.apart, least=0)) != (self.visits > 1):
            raise _validate.ArgumentError("visits", "must be more than 1 where visits must lie apart, and 1 otherwise")

    @property
    def endless(self) -> bool:
        """Whether its term has no end. The last event of such a term alone tells what it has spent: every sync up to it
        was drawn once, at the same cost. So a silo need not keep the earlier events for ever."""
        return not self.syncs


# Fields that were added later, and the values that events without them have. A field with that value is not written, so
# that one event has one text, and old ledgers keep their hashes.
LATER: dict[str, Any] = {"visits": 1, "apart": 0, "forget": 1.0}


def _as_declared(value: Release | Cost) -> None:
    """Refuse empty texts, and make a float of every number in a float field: 1 and 1.0 must have one text."""
    for field in fields(value):
        found = getattr(value, field.name)
        if field.type == "str" and not found:
            raise _validate.ArgumentError(field.name, "must not be empty")
        if field.type == "float":
            object.__setattr__(value, field.name, float(found))


class Entry(NamedTuple):
    """An event, chained and signed."""

    previous: str
    event: Release
    hash: str
    signature: str = ""  # of the silo, in hex
    left_out: int = 0  # entries of the same endless term that stood before it and are no longer kept


Signs = Callable[[int, bytes], bytes]  # signs a ledger with this many entries and this last hash
Checks = Callable[[int, bytes, bytes], bool]  # whether this is such a signature


# -- the chain -----------------------------------------------------------------------------------------------


def append(previous_hash: str, event: Release, number: int = 1, sign: Signs | None = None) -> Entry:
    """Entry `number`, from 1, of a ledger whose last hash is `previous_hash` (`GENESIS` if it is empty)."""
    hash_ = _hash(previous_hash, event)
    signature = b"" if sign is None else sign(number, bytes.fromhex(hash_))
    return Entry(previous_hash, event, hash_, signature.hex())


def verify(
    entries: Sequence[Entry],
    head: str | None = None,
    *,
    signed: Checks | None = None,
    witnessed: Sequence[tuple[int, str]] = (),
) -> None:
    """Raise LedgerError unless the entries are unaltered and in their places.

    `head` is a hash that somebody noted when it was the last one: it must still be in the ledger (see `entries_since`).
    `signed` checks every entry's signature. `witnessed` are heads (number of entries, last hash) of this ledger that
    others have seen: each must be in it, or be the head of a lost copy whose last releases this one has given up
    (`LOST`).

    In a term without an end, entries after the first may be left out, as many as the next entry that is there says:
    that entry stands for them. What others have seen must be in the ledger all the same: a silo keeps its newest
    entries.
    """
    previous, number = GENESIS, 0
    for place, entry in enumerate(entries):
        number += 1 + entry.left_out
        if entry.left_out and not _may_follow_a_gap(entry, entries[place - 1] if place else None):
            raise LedgerError(f"entry {number} does not follow the one before it: an entry was removed, added or moved")
        if entry.previous != previous and not entry.left_out:
            raise LedgerError(f"entry {number} does not follow the one before it: an entry was removed, added or moved")
        if entry.hash != _hash(entry.previous, entry.event):
            raise LedgerError(f"entry {number} was altered: its hash does not match its content")
        if entry.event.silo != entries[0].event.silo:
            raise LedgerError(f"entry {number} is from silo {entry.event.silo!r}, but a ledger belongs to one silo")
        previous = entry.hash
    if head is not None:
        entries_since(entries, head)
    if signed is not None:
        _verify_signatures(entries, signed)
    for count, hash_ in witnessed:
        _verify_witness(entries, count, hash_)


def check_end(entries: Sequence[Entry], last: tuple[int, int] | None) -> None:
    """Raise LedgerError if the ledger ends before the entry of the `last` release, given by its term and sync."""
    if last is not None and (not entries or (entries[-1].event.term, entries[-1].event.sync) < last):
        term, sync = last
        raise LedgerError(f"the entry of sync {sync} of term {term} is missing, which was drawn: its end was cut off")


def _may_follow_a_gap(entry: Entry, before: Entry | None) -> bool:
    """Whether entries may be missing before this one: only entries of its own endless term, and not the first of them.

    The first entry is kept because it follows the term before: so no other term can be hidden in a gap.
    """
    if before is None or (before.event.term, before.event.plan) != (entry.event.term, entry.event.plan):
        return False
    return entry.event.endless and 0 < entry.left_out < entry.event.sync - before.event.sync


def numbers(entries: Sequence[Entry]) -> list[int]:
    """The place of each entry in the whole ledger, from 1; entries that are left out count."""
    return list(accumulate(1 + entry.left_out for entry in entries))


def entries_since(entries: Sequence[Entry], head: str) -> int:
    """How many entries were added since `head` was the last hash; LedgerError if no entry has that hash and none names
    it as lost."""
    noted = head.lower()
    if not re.fullmatch("[0-9a-f]{64}", noted):
        raise _validate.ArgumentError("head", f"must be a hash of 64 hexadecimal digits, got {head!r}")
    places = {GENESIS: 0}
    for number, entry in zip(numbers(entries), entries, strict=True):
        places[entry.hash] = number
        if LOST + noted in entry.event.released:
            places.setdefault(noted, number - 1)
    found = places.get(noted)
    if found is None:
        raise LedgerError(
            f"no entry has the noted hash {noted[:12]}: entries are missing at the end, or entries were rewritten"
            f"{_or_left_out(entries)}"
        )
    return (numbers(entries)[-1] if entries else 0) - found


def _or_left_out(entries: Sequence[Entry]) -> str:
    gone = sum(entry.left_out for entry in entries)
    return f", or the hash is that of one of the {gone:,} entries that are no longer kept" if gone else ""


def _verify_signatures(entries: Sequence[Entry], signed: Checks) -> None:
    for number, entry in zip(numbers(entries), entries, strict=True):
        try:
            signature = bytes.fromhex(entry.signature)
        except ValueError:
            signature = b""
        if not signed(number, bytes.fromhex(entry.hash), signature):
            raise LedgerError(f"entry {number} is not signed by the silo: it was written by somebody else")


def _verify_witness(entries: Sequence[Entry], count: int, hash_: str) -> None:
    at = dict(zip(numbers(entries), entries, strict=True))
    last = max(at, default=0)
    if not count or (count in at and hash_ in {at[count].hash, *_lost_heads(entries)[count]}):
        return
    raise LedgerError(
        f"others have seen a ledger of {count} entries with last hash {hash_[:12]}; this one has {last} entries and "
        f"does not contain that hash: it was rewritten, or replaced by an older copy{_or_left_out(entries)}"
    )


def _lost_heads(entries: Sequence[Entry]) -> dict[int, set[str]]:
    """By number of entries: the last hashes that a lost copy of this ledger can have had where this one has given up.

    An entry that gives up a release tells everything about it but the words for what was released, and these are the
    same for all releases of a term. So the lost entry can be written again, after whatever came before it here, and its
    hash is known. This also checks the entries before the loss, and what the lost ones cost. Only where a term has no
    other release to take the words from is the silo believed that the head it names was that of the lost copy.
    """
    texts = {(e.event.term, e.event.plan): e.event.released for e in entries if LOST not in e.event.released}
    heads: dict[int, set[str]] = {0: set()}
    for number, entry in zip(numbers(entries), entries, strict=True):
        heads.setdefault(number - 1, set())
        heads[number] = set()
        if LOST not in entry.event.released:
            continue
        text = texts.get((entry.event.term, entry.event.plan))
        if text is None:
            heads[number] = set(re.findall(f"{LOST}([0-9a-f]{{64}})", entry.event.released))
        else:
            lost = replace(entry.event, released=text)
            heads[number] = {_hash(previous, lost) for previous in (entry.previous, *heads[number - 1])}
    return heads


def terms(entries: Iterable[Entry]) -> dict[tuple[int, str], list[Release]]:
    """Events by (term, plan hash), in the order in which the terms began."""
    grouped: dict[tuple[int, str], list[Release]] = {}
    for entry in entries:
        grouped.setdefault((entry.event.term, entry.event.plan), []).append(entry.event)
    return grouped


def _hash(previous: str, event: Release) -> str:
    return hashlib.sha256(f"{previous}\n{event_to_json(event)}".encode()).hexdigest()


# -- as text -------------------------------------------------------------------------------------------------


def event_to_json(event: Release) -> str:
    """The event as canonical JSON: sorted names, no spaces, so that one event has one text."""
    return _canonical(_plain(event))


def event_from_json(text: str) -> Release:
    """The event that `event_to_json` wrote; unknown kinds, unknown or missing fields are refused."""
    return _event(_object(text, "an event"))


def to_json(entry: Entry) -> str:
    """One entry as one line of text."""
    plain = {"hash": entry.hash, "previous": entry.previous, "event": _plain(entry.event)}
    gap = {"left_out": entry.left_out} if entry.left_out else {}
    return _canonical({**plain, "signature": entry.signature, **gap})


def from_json(text: str) -> Entry:
    """The entry that `to_json` wrote; not yet verified."""
    data = _object(text, "an entry")
    left_out = _typed("left_out", data.pop("left_out", 0), "int")
    if set(data) != {"hash", "previous", "event", "signature"} or not isinstance(data["event"], dict):
        raise LedgerError(f"an entry must have hash, previous, event and signature, got {', '.join(sorted(data))}")
    previous, hash_, signature = (_typed(name, data[name], "str") for name in ("previous", "hash", "signature"))
    return Entry(previous, _event(data["event"]), hash_, signature, left_out)


Columns = tuple[object, object, object, object, object]  # number (from 0), previous, event, hash, signature


def from_columns(rows: Iterable[Columns]) -> list[Entry]:
    """The entries that a database holds in these columns, in their order; not yet verified. In a damaged file the
    columns can hold anything."""
    entries, following = list[Entry](), 0
    for number, previous, event, hash_, signature in rows:
        columns = {"previous": previous, "event": event, "hash": hash_, "signature": signature}
        before, text, own, signed = (_typed(name, value, "str") for name, value in columns.items())
        place = _typed("number", number, "int")
        if place < following:
            raise LedgerError(f"entry {place + 1} is in the wrong place")
        entries.append(Entry(before, event_from_json(text), own, signed, place - following))
        following = place + 1
    return entries


def _plain(event: Release) -> dict[str, Any]:
    """The event and its cost as one flat table; `kind` says which cost."""
    everything = {name: value for name, value in asdict(event).items() if name != "cost"}
    shared = {name: value for name, value in everything.items() if name not in LATER or value != LATER[name]}
    return {"kind": event.cost.kind, **shared, **asdict(event.cost)}


def _canonical(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"{what} must be JSON: {error}") from None
    if not isinstance(data, dict):
        raise LedgerError(f"{what} must be a JSON object, got {type(data).__name__}")
    return data


def _event(data: Mapping[str, Any]) -> Release:
    values = dict(data)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in _COSTS:
        raise LedgerError(f"event kind must be one of {', '.join(_COSTS)}; got {kind!r}")
    shared = {field.name: str(field.type) for field in fields(Release) if field.name != "cost"}
    own = {field.name: str(field.type) for field in fields(_COSTS[kind])}
    wrong = sorted((set(values) | set(LATER)) ^ {*shared, *own})
    if wrong:
        differs = ", ".join(name or "an empty name" for name in wrong)
        raise LedgerError(
            f"a {kind} event must have the fields {', '.join((*shared, *own))}; this one differs in {differs}"
        )
    typed = {name: _typed(name, value, (shared | own)[name]) for name, value in values.items()}
    try:
        cost = _COSTS[kind](**{name: typed.pop(name) for name in own})
        return Release(**typed, cost=cost)
    except (ValueError, OverflowError) as error:
        raise LedgerError(f"a {kind} event is invalid: {error}") from None


def _typed(name: str, value: Any, type_name: str) -> Any:
    """The value, if it has the type that its field is declared with; a whole number will do for a float."""
    allowed: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
    if isinstance(value, bool) or not isinstance(value, allowed[type_name]):
        raise LedgerError(f"{name} must be of type {type_name}, got {value!r}")
    return value
