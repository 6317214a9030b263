"""What must hold after a run, whatever was killed in it: the parties' stores against what the world was told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from fedbandit._arrays import Integers
from fedbandit.bandit.statistics import contributions
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo import book
from fedbandit.federation.silo.decisions.tickets import DIGEST_BYTES
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.states import DecisionState, ReleaseState, SyncState
from fedbandit.federation.store import SiloStore, SyncStore, read_engine
from fedbandit.federation.store.silo_store import StoredRelease
from fedbandit.federation.wire import heads, messages
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.plan import Plan
from tests.torture.crashes.conductor import Conductor, Served

__all__ = ["Run", "check", "check_stores"]


class Run(Protocol):
    """A federation whose parties have ended: who they were, where their stores are, what the applications were told."""

    plan: Plan
    homes: dict[str, Home]
    silos: list[str]
    served: list[Served]

    def store(self, name: str) -> Path: ...


def check(run: Conductor) -> None:
    """AssertionError if anything was lost, counted twice, drawn twice or told in two ways."""
    assert not run.remains, f"features of people can still be read in {run.remains}"
    check_stores(run)
    opened = _opened(run)
    for name in run.silos:
        with _silo(run, name) as store:
            _releases(run, name, store, opened)
    _results(run, opened)
    _models(run, opened)


def check_stores(run: Run) -> None:
    """The same, as far as the stores tell: what crossed between the parties is not looked at."""
    models = []
    for name in run.silos:
        with _silo(run, name) as store:
            _rewards(run, name, store)
            _ledger(run, name, store)
            states = [release.state for release in store.releases(1)]
            assert states == [ReleaseState.INCLUDED] * len(run.plan.times), f"{name}: {states}"
            models.append(store.models(1))
    assert all(other == models[0] for other in models), "silos have different models"
    _decoded(run)


@contextmanager
def _silo(run: Run, name: str) -> Iterator[SiloStore]:
    engine = read_engine(run.store(name))
    try:
        yield SiloStore(engine)
    finally:
        engine.close()


def _opened(run: Conductor) -> dict[tuple[str, int, str, str], set[bytes]]:
    """What was said, by kind, sync, sender and receiver: the plain bytes of all messages."""
    parties = {name: home.party() for name, home in run.homes.items()}
    said: dict[tuple[str, int, str, str], set[bytes]] = defaultdict(set)
    for message in run.crossed:
        role, name = message.subject.split(".")[-2:]
        receiver = name if role == "silo" else role
        context, payload = parties[receiver].open(message.data)
        said[context.kind, context.sync, context.sender, receiver].add(payload)
    return said


def _rewards(run: Run, name: str, store: SiloStore) -> None:
    """Every reward that was acknowledged is in one batch, the one that was named, once; those that were said to come
    too late are in none."""
    users = [user for user in run.served if user.silo == name and user.batches]
    for user in users:
        assert len(set(user.batches)) == 1, f"{name}: a reward was acknowledged for the batches {user.batches}"
    with store.engine.read() as sql:
        stretches = sql.all("SELECT sync, state, digest FROM rewarded WHERE term = 1")
        left = sql.all("SELECT count(*) FROM raw_rows")
    rows = [(sync, state) for sync, state, digests in stretches for _ in range(len(digests) // DIGEST_BYTES)]
    states = {DecisionState.COUNTED.value, *([DecisionState.LEFT_OUT.value] if run.plan.protocol.needs_points else ())}
    assert {state for _, state in rows} <= states
    acknowledged = Counter(user.batches[0] for user in users)
    counted = Counter(sync for sync, state in rows if state == DecisionState.COUNTED.value)
    assert counted == acknowledged, f"{name} has lost or doubled a reward"
    assert {r.sync: r.users for r in store.releases(1)} == {k: acknowledged[k] for k in range(len(run.plan.times))}
    assert left == [(0,)], f"{name} keeps raw rows of batches that it has released"
    assert store.term(1).decisions >= len(users)


def _releases(run: Conductor, name: str, store: SiloStore, said: dict[tuple[str, int, str, str], set[bytes]]) -> None:
    """Release k was sent in the stored bytes and no others, and holds the batch k and noise that was drawn, once."""
    receivers = run.homes[name].party().agreement.subjects.receivers
    encoder = run.plan.encoder.init((run.plan.protocol.width,))
    for sync, release in enumerate(store.releases(1)):
        assert release.sync == sync
        assert release.sealed is not None
        for role, sealed in zip(receivers, messages.unpack(release.sealed), strict=True):
            sent = {m.data for m in run.crossed if m.id == f"release.{sync}.{name}.{role}"}
            assert sent == {sealed}, f"{name}: release {sync} for the {role} was sent in {len(sent)} versions"
        assert all(len(said["release", sync, name, role]) == 1 for role in receivers)
        encoder, encoded = run.plan.encoder.step(encoder, _sums(run, name, sync))
        _holds(run, name, release, encoded)
    assert len(store.releases(1)) == len(run.plan.times)


def _sums(run: Conductor, name: str, sync: int) -> Integers:
    batch = [user for user in run.served if user.silo == name and sync in user.batches]
    x, y = np.array([user.features for user in batch]), np.array([user.reward for user in batch])
    return np.asarray(contributions(x, y, run.plan.bits, run.plan.centre).sum(axis=0))


def _holds(run: Conductor, name: str, release: StoredRelease, encoded: Integers) -> None:
    """Without one of the noises that the silo drew, the release is the encoded batch, to the last bit."""
    if run.plan.protocol.needs_points:
        return  # its noise is binomial, one draw per point
    assert release.drawn is not None
    words = [np.asarray(array).view(np.uint64) for array in messages.decode(release.drawn)]
    noise = (sum(words[1:], start=words[0]).view(np.int64) - encoded).ravel()
    drawn = [candidate.ravel() for candidate in run.noises[name]] or [np.zeros_like(noise)]
    found = [candidate for candidate in drawn if np.array_equal(candidate, noise)]
    assert found, f"{name}: release {release.sync} does not hold the batch that was acknowledged"


def _ledger(run: Run, name: str, store: SiloStore) -> None:
    """Every release was paid for once; the ledger is whole and signed."""
    home, rows = run.homes[name], store.ledger()
    expected = 0 if run.plan.release(name, 1, 0) is None else len(run.plan.times)
    assert len(rows) == expected, f"{name} has paid for {len(rows)} releases of {expected}"
    if not rows:
        return
    verifier = home.public.verifier
    assert all(book.head(row).is_of(name, verifier) for row in rows), f"{name}: an entry is not signed"
    paid = [entry.event for entry in book.entries(rows)]
    assert paid == [run.plan.release(name, 1, sync) for sync in range(expected)], f"{name} has paid for other releases"
    spent, planned = silo_status(store, run.plan, store.term(1))["epsilon_spent"], run.plan.privacy
    assert planned is not None
    assert spent is None or spent <= planned.epsilon * (1 + 1e-6), f"{name} has spent {spent}"


def _results(run: Conductor, said: dict[tuple[str, int, str, str], set[bytes]]) -> None:
    """Mixer and analyzer have one result per sync, with everybody in it, and have said nothing else."""
    for name in run.keepers:
        engine = read_engine(run.store(name))
        store = SyncStore(engine)
        syncs = store.all()
        assert [(s.sync, s.state) for s in syncs] == [(k, SyncState.PUBLISHED) for k in range(len(run.plan.times))]
        for sync in syncs:
            assert set(sync.cohort) == set(run.silos), f"{name}: sync {sync.sync} has the cohort {sync.cohort}"
            if name == "mixer":
                totals = {m.data for m in run.crossed if m.id == f"mixed.{sync.sync}"}
                assert totals == {sync.value}, f"{len(totals)} totals of sync {sync.sync} were sent"
        assert store.problem() is None
        engine.close()
    for (kind, number, sender, _), versions in said.items():
        if kind in ("release", "mixed", "holds", "model"):
            assert len(versions) == 1, f"{sender} sent {len(versions)} versions of its {kind} of sync {number}"


def _decoded(run: Run) -> None:
    """The analyzer's sums are those of what the silos drew."""
    protocol = run.plan.protocol
    if protocol.mixer_draws:
        return  # there is noise in them that no silo drew
    engine = read_engine(run.store("analyzer"))
    values = [sync.value for sync in SyncStore(engine).all()]
    engine.close()
    drawn: list[list[StoredRelease]] = []
    for name in run.silos:
        with _silo(run, name) as store:
            drawn.append(store.releases(1))
    state = protocol.init_analyzer()
    for value, releases in zip(values, zip(*drawn, strict=True), strict=True):
        arrays = zip(*(messages.decode(release.drawn or b"") for release in releases), strict=True)
        state, prefix = protocol.decode(state, protocol.passed_on(tuple(map(np.stack, arrays)), ExactNoise()))
        assert value is not None
        found = Outcome.decode(value, run.plan).prefix
        close = np.allclose(found, prefix, rtol=0, atol=1e-9 * max(1.0, np.abs(prefix).max()))
        assert close, "the analyzer has decoded something else than was released"


def _models(run: Conductor, said: dict[tuple[str, int, str, str], set[bytes]]) -> None:
    """There is one model k: the analyzer's, every silo's, and the one that was sent."""
    engine = read_engine(run.store("analyzer"))
    models = [(sync.sync, sync.value) for sync in SyncStore(engine).all()]
    engine.close()
    agreement = run.homes["analyzer"].agreement()
    previous = heads.link(bytes(32), f"{agreement.id} {run.plan.hash}".encode())
    for sync, value in models:
        assert value is not None
        sent = {payload for name in run.silos for payload in said["model", sync, "analyzer", name]}
        assert len(sent) == 1, f"{len(sent)} models of sync {sync} were sent"
        model = SignedOutcome.decode(sent.pop(), run.plan)
        assert model.outcome.encode() == value
        assert model.previous == previous
        previous = heads.link(previous, value)
        assert model.head.hash == previous
        assert Outcome.decode(value, run.plan).cohort.all()
    for name in run.silos:
        with _silo(run, name) as store:
            assert store.models(1) == models, f"{name} has other models than the analyzer"
