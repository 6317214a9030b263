"""A million inputs for everything that decodes bytes or reads a file of somebody else's.

Only the documented exceptions come out, no input takes long or much memory, and what is taken is canonical: it encodes
to the bytes it came from, or, where a format allows several spellings, to one spelling that means the same.
"""

import json
import resource
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedbandit._arrays import Numbers
from fedbandit._validate import ArgumentError
from fedbandit.cli.officer.ledger_command import _read as read_ledger
from fedbandit.cli.plan_file import read_plan, read_schema
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.home import Home, Settings
from fedbandit.federation.silo.decisions.tickets import DecisionIds, UnknownDecision
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import Reading, Timing
from fedbandit.federation.wire import envelopes, heads, messages
from fedbandit.federation.wire.envelopes import NOBODY, Context, EnvelopeError
from fedbandit.federation.wire.heads import Greeting, Head
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Holds, Mixed, Outcome, Parcel, SignedOutcome
from fedbandit.plan import Plan
from fedbandit.privacy import ledger
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import LedgerError
from fedbandit.problem import Category, Hashed, Number, Schema
from fedbandit.protocol.encoder import Stream
from fedbandit.schedule import clock, every
from tests.federation.small import small_plan
from tests.torture.attacks.mutations import mutated

pytestmark = pytest.mark.fire
SLOWEST = 0.5  # seconds of processor time for one input
MEMORY = 200 * 2**10  # kB that a decoder may add to the process
PLAN = small_plan()
SCHEMA = Schema(
    {"age": Number(0, 120, missing=True), "sex": Category(["f", "m"]), "code": Hashed(5)},
    {"dose": Number(0, 10)},
    actions=("low", "high"),
    interactions=[("age", "action"), ("sex", "dose")],
)
SHUFFLE = Plan(12, 4, 2, Privacy(0.01, 0.1), trust="shuffle", schedule=every(2), visits="public", mechanism="tree",
               calibration="paper")  # fmt: skip


class Decoder(NamedTuple):
    """`decode` takes bytes or raises one of `errors`; `encode` is its inverse. `full` inputs in full, a hundredth in
    part."""

    examples: list[bytes]
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None
    errors: tuple[type[Exception], ...] = (MessageError,)
    full: int = 50_000
    spellings: bool = False  # whether several inputs may mean the same


@cache
def homes(folder: Path) -> list[Home]:
    return founding.local(folder, PLAN, ["silo-00", "silo-01", "silo-02"], Timing(10.0, start=0.0))


def arrays() -> Decoder:
    examples: list[list[Numbers]] = [
        [np.arange(3)],
        [np.zeros((2, 3)), np.ones(4, dtype=np.uint64)],
        [np.array(1.5)],
        [],
        [np.zeros((0, 2))],
    ]
    return Decoder([messages.encode(one) for one in examples], messages.decode, messages.encode)


def arrays_of_a_shape() -> Decoder:
    shapes: list[tuple[int, ...]] = [(5,), (3,)]
    valid = messages.encode([np.arange(5), np.ones(3)])
    return Decoder([valid], lambda data: messages.decode(data, shapes), messages.encode)


def packed() -> Decoder:
    examples = [[b"one", b"", b"three" * 10], [], [b"x"]]
    return Decoder([messages.pack(one) for one in examples], lambda data: messages.unpack(data, most=5), messages.pack)


def streams() -> Decoder:
    examples = [Stream(3, (np.arange(4.0), np.ones((2, 2)))), Stream(0, ())]
    return Decoder([messages.encode_stream(one) for one in examples], messages.decode_stream, messages.encode_stream)


def some_head() -> Head:
    return heads.signed("silo-00", 3, bytes(range(32)), PartyKeys({"identity": bytes(32)}).signer)


def single_heads() -> Decoder:
    return Decoder([some_head().encode(), heads.NONE.encode()], Head.decode, Head.encode)


def greetings() -> Decoder:
    one = Greeting(2, 2, b"q" * 16, b"a" * 16, 7, some_head(), heads.NONE).encode()

    def decode(data: bytes) -> tuple[Greeting, bytes]:
        return Greeting.decode(data), data[len(one) :]  # a later version may add to the end

    def encode(found: tuple[Greeting, bytes]) -> bytes:
        return found[0].encode() + found[1]

    return Decoder([one, one + b"more"], decode, encode, spellings=True)  # an earlier version says less


def editions() -> Decoder:
    keys = PartyKeys.generate()
    some = [
        Edition(1, "00" * 32, 2, "admit", "late", keys.public("late", "silo")),
        Edition(2, "11" * 32, 3, "dismiss", "silo-00"),
        Edition(3, "22" * 32, 3, "operator", operator=bytes(32), signer=bytes(32)),
    ]
    examples = [edition.signed(keys.signer).encode() for edition in some]
    return Decoder(examples, Edition.decode, Edition.encode, (ArgumentError,), 10_000, spellings=True)


def parcels_for_the_mixer() -> Decoder:
    words = np.arange(PLAN.protocol.width, dtype=np.uint64)
    valid = Parcel((words,), ledger=some_head()).encode()
    return Decoder([valid], lambda data: Parcel.decode(data, PLAN.protocol, "mixer"), Parcel.encode)


def parcels_for_the_analyzer() -> Decoder:
    words = np.arange(PLAN.protocol.width, dtype=np.uint64)
    valid = Parcel((words,), models=some_head()).encode()
    return Decoder([valid], lambda data: Parcel.decode(data, PLAN.protocol, "analyzer"), Parcel.encode)


def parcels_of_the_shuffle() -> Decoder:
    blind = sum(part.blind for part in SHUFFLE.protocol.parts)
    valid = Parcel((), tuple(bytes([n]) * 50 for n in range(blind))).encode()
    return Decoder([valid], lambda data: Parcel.decode(data, SHUFFLE.protocol, "mixer"), Parcel.encode)


def lists_of_what_is_held() -> Decoder:
    valid = Holds(np.array([1, 0, 1]), some_head()).encode()
    return Decoder([valid], lambda data: Holds.decode(data, PLAN), Holds.encode)


def totals() -> Decoder:
    total = np.arange(PLAN.protocol.width, dtype=np.uint64)[None]
    examples = [Mixed(np.ones(3, dtype=np.int64), (total,), totals=some_head()), Mixed(np.zeros(3, dtype=np.int64))]
    return Decoder([one.encode() for one in examples], lambda data: Mixed.decode(data, PLAN), Mixed.encode)


def totals_of_the_shuffle() -> Decoder:
    blind = sum(part.blind for part in SHUFFLE.protocol.parts)
    valid = Mixed(np.ones(12, dtype=np.int64), (), tuple(b"sealed" for _ in range(12 * blind))).encode()
    return Decoder([valid], lambda data: Mixed.decode(data, SHUFFLE), Mixed.encode)


def outcomes() -> Decoder:
    valid = Outcome(np.linspace(-1, 1, PLAN.protocol.width), np.array([1, 1, 0])).encode()
    return Decoder([valid], lambda data: Outcome.decode(data, PLAN), Outcome.encode)


def models() -> Decoder:
    outcome = Outcome(np.linspace(-1, 1, PLAN.protocol.width), np.array([1, 1, 0]))
    head = some_head()._replace(hash=heads.link(bytes(32), outcome.encode()))
    valid = SignedOutcome(outcome, bytes(32), head).encode()
    return Decoder([valid], lambda data: SignedOutcome.decode(data, PLAN), SignedOutcome.encode)


def envelope_headers() -> Decoder:
    context = Context("demo", "ab" * 32, "release", "silo-00", "mixer", 7)
    valid = context.header() + bytes(envelopes.OVERHEAD)

    def decode(data: bytes) -> tuple[Context, bytes]:
        return envelopes.claimed(data), data[len(context.header()) :]

    return Decoder([valid], decode, lambda found: found[0].header() + found[1], (EnvelopeError,))


def whole_envelopes(folder: Path) -> Decoder:
    """Nothing but the very bytes that were sealed opens."""
    parties = {home.settings.name: home.party() for home in homes(folder)}
    valid = parties["silo-00"].seal("release", parties["mixer"].public, 3, b"a release")
    seen = {parties["mixer"].open(valid): valid}
    return Decoder([valid], parties["mixer"].open, seen.__getitem__, (EnvelopeError,), 40_000)


def anonymous_envelopes(folder: Path) -> Decoder:
    parties = {home.settings.name: home.party() for home in homes(folder)}
    context = Context("demo", PLAN.hash, "release", NOBODY, "analyzer", 3)
    valid = envelopes.seal_anonymously(b"an array", context, parties["analyzer"].public.sealing)

    def decode(data: bytes) -> bytes:
        return parties["analyzer"].open_anonymous("release", 3, data)

    return Decoder([valid], decode, {b"an array": valid}.__getitem__, (EnvelopeError,), 20_000)


def decision_ids() -> Decoder:
    """Base64 may end in signs or bits that say nothing; the ticket, and so what is counted once, is the same."""
    ids = DecisionIds(bytes(32), PLAN.hash, 3)
    valid = ids.issue(np.zeros((1, 3)), [b"p" * 16], [2], 600.0)[0].encode()
    known = ids.read(valid.decode())

    def decode(data: bytes) -> Any:
        found = ids.read(data.decode("latin-1"))
        assert found == known
        return found

    return Decoder([valid], decode, None, (UnknownDecision,))


def clock_readings() -> Decoder:
    valid = Reading(1000.5, 50.25, "boot").encode()
    return Decoder([valid], Reading.decode, Reading.encode, (ValueError,), 30_000, spellings=True)


def as_text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(data.decode("utf-8", "surrogateescape"))


def ledger_entries() -> Decoder:
    examples = [
        plan.release("silo-00", 1, sync)
        for plan in (PLAN, small_plan(trust="central"), SHUFFLE, small_plan(schedule=clock(60), visits="private"))
        for sync in (0, 1)
    ]
    valid = [ledger.to_json(ledger.append(ledger.GENESIS, one)).encode() for one in examples if one is not None]
    encode = lambda entry: ledger.to_json(entry).encode()  # noqa: E731
    return Decoder(valid, as_text(ledger.from_json), encode, (LedgerError,), 60_000, spellings=True)


def ledger_events() -> Decoder:
    event = PLAN.release("silo-00", 1, 0)
    assert event is not None
    encode = lambda found: ledger.event_to_json(found).encode()  # noqa: E731
    valid = [ledger.event_to_json(event).encode()]
    return Decoder(valid, as_text(ledger.event_from_json), encode, (LedgerError,), 40_000, spellings=True)


def files(folder: Path, name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        path = folder / name
        path.write_bytes(data)
        path.chmod(0o600)
        return read(path)

    return decode


def agreements(folder: Path) -> Decoder:
    valid = homes(folder)[0].agreement()
    text = json.dumps(valid.as_dict()).encode()
    encode = lambda found: json.dumps(found.as_dict()).encode()  # noqa: E731
    return Decoder([text], files(folder, "fuzzed.json", Agreement.load), encode, (ValueError,), 2_000, spellings=True)


def plans(folder: Path) -> Decoder:
    examples = [PLAN, SHUFFLE, small_plan(schedule=clock(60), visits="private"), small_plan(privacy=None, trust="none")]
    text = [json.dumps(plan.as_dict()).encode() for plan in examples]
    encode = lambda plan: json.dumps(plan.as_dict()).encode()  # noqa: E731
    return Decoder(text, files(folder, "plan.json", read_plan), encode, (ValueError,), 2_000, spellings=True)


def schemas(folder: Path) -> Decoder:
    text = [json.dumps(SCHEMA.as_dict()).encode(), json.dumps(small_plan(schema=SCHEMA).as_dict()).encode()]
    encode = lambda found: json.dumps(found.as_dict()).encode()  # noqa: E731
    return Decoder(text, files(folder, "schema.json", read_schema), encode, (ValueError,), 10_000, spellings=True)


def toml_plans(folder: Path) -> Decoder:
    text = b'silos = 3\nrounds = 20\ndim = 2\ntrust = "secure-sum"\nvisits = "public"\n[privacy]\nepsilon = 1.0\n'
    text += b'delta = 0.1\n[schedule]\nkind = "every"\nbatch = 5\n'
    read = files(folder, "plan.toml", read_plan)
    return Decoder([text], lambda data: read(data).as_dict(), None, (ValueError,), 4_000)


def party_cards(folder: Path) -> Decoder:
    text = [json.dumps(home.public.as_dict()).encode() for home in homes(folder)]
    encode = lambda found: json.dumps(found.as_dict()).encode()  # noqa: E731
    return Decoder(text, files(folder, "card.json", PublicKeys.load), encode, (ValueError,), 15_000, spellings=True)


def party_keys(folder: Path) -> Decoder:
    text = (homes(folder)[0].path / "party.key").read_bytes()
    return Decoder([text], files(folder, "fuzzed.key", PartyKeys.load), None, (ValueError,), 10_000)


def party_settings(folder: Path) -> Decoder:
    text = [(home.path / "party.json").read_bytes() for home in homes(folder)]
    read = files(folder, "party.json", Settings.load)
    return Decoder(text, read, None, (ValueError,), 15_000)


def ledger_files(folder: Path) -> Decoder:
    event = PLAN.release("silo-00", 1, 0)
    assert event is not None
    line = ledger.to_json(ledger.append(ledger.GENESIS, event)).encode()
    with Silo.open(folder / "ledger.db", PLAN):
        pass
    database = (folder / "ledger.db").read_bytes()
    read = files(folder, "fuzzed-ledger", lambda path: read_ledger(str(path)))
    return Decoder([line, line + b"\n" + line, database], read, None, (LedgerError, ArgumentError), 6_000)


WITHOUT_FILES = [
    arrays, arrays_of_a_shape, packed, streams, single_heads, greetings, editions, parcels_for_the_mixer,
    parcels_for_the_analyzer, parcels_of_the_shuffle, lists_of_what_is_held, totals, totals_of_the_shuffle, outcomes,
    models, envelope_headers, decision_ids, clock_readings, ledger_entries, ledger_events,
]  # fmt: skip
WITH_FILES = [
    whole_envelopes, anonymous_envelopes, agreements, plans, schemas, toml_plans, party_cards, party_keys,
    party_settings, ledger_files,
]  # fmt: skip


def fuzz(decoder, count, seed=1):
    """Feed the decoder; returns how many inputs it took and the longest time that it needed for one."""
    before, taken, slowest, worst = _peak(), 0, 0.0, b""
    inputs = mutated(decoder.examples, seed)
    for example in decoder.examples:
        assert decoder.encode is None or decoder.encode(decoder.decode(example)) == example or decoder.spellings
    for _ in range(count):
        data = next(inputs)
        began = time.thread_time()
        try:
            found = decoder.decode(data)
        except decoder.errors:
            found = None
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} ({error}) for {data[:300]!r}") from error
        took = time.thread_time() - began
        if took > slowest:
            slowest, worst = took, data
        if found is not None:
            taken += 1
            _check_canonical(decoder, found, data)
    assert slowest < SLOWEST, f"{slowest:.2f} s for {worst[:300]!r}"
    assert _peak() - before < MEMORY
    return taken, slowest


def _check_canonical(decoder, found, data):
    if decoder.encode is None:
        return
    again = decoder.encode(found)
    if decoder.spellings:
        assert decoder.encode(decoder.decode(again)) == again, data[:300]
    else:
        assert again == data, data[:300]


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("make", WITHOUT_FILES, ids=lambda make: make.__name__)
def test_bytes(make, size, tally):
    decoder = make()
    count = size(max(200, decoder.full // 200), decoder.full)
    fuzz(decoder, count)
    tally("fuzzed inputs", count)


@pytest.mark.parametrize("make", WITH_FILES, ids=lambda make: make.__name__)
def test_files_and_envelopes(make, size, tally, tmp_path):
    decoder = make(tmp_path)
    count = size(max(100, decoder.full // 200), decoder.full)
    fuzz(decoder, count)
    tally("fuzzed inputs", count)
