"""Who can read what of a release: each receiver its own arrays, and nobody else's."""

import numpy as np
import pytest

from fedbandit.federation.setup import founding
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.silo_store import StoredRelease
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.heads import NONE
from fedbandit.federation.wire.parcels import Parcel
from fedbandit.privacy.budget import Privacy
from tests.federation.small import small_plan

PLANS = {
    "central": small_plan(trust="central"),
    "secure-sum": small_plan(),
    "shuffle": small_plan(silos=12, privacy=Privacy(0.01, 0.1), trust="shuffle", mechanism="tree", calibration="paper"),
    "vector-sum": small_plan(trust="vector-sum", mechanism="tree", calibration="paper"),
}
READ: dict[str, dict[str, list[int]]] = {  # by receiver, the parts of a message that it reads
    "central": {"analyzer": [0]},
    "secure-sum": {"mixer": [0], "analyzer": [1]},
    "shuffle": {"mixer": []},
    "vector-sum": {"mixer": [0]},
}
CARRIED = {"shuffle": [0]}  # the parts that the mixer carries to the analyzer and cannot read


@pytest.mark.parametrize("name", PLANS)
def test_every_receiver_gets_its_own_parts_and_no_others(name, tmp_path):
    plan = PLANS[name]
    homes = founding.local(tmp_path / "homes", plan, [f"silo-{n}" for n in range(plan.silos)], Timing(10.0, start=0.0))
    parties = {home.settings.role: home.party() for home in reversed(homes)}
    sealer = Sealer(next(home.party() for home in homes if home.settings.name == "silo-0"))
    protocol = plan.protocol
    arrays = tuple(
        np.arange(protocol.width, dtype=part.dtype) + np.array(100 * (number + 1), dtype=part.dtype)
        for number, part in enumerate(protocol.parts)
    )
    wire = sealer.at_once(2, arrays, NONE)
    assert wire is not None
    sealed = messages.unpack(wire.sealed)
    assert {receiver.role for receiver in sealer.receivers} == set(READ[name])
    for receiver, envelope in zip(sealer.receivers, sealed, strict=True):
        context, plain = parties[receiver.role].open(envelope)
        assert (context.sender, context.receiver, context.sync) == ("silo-0", receiver.name, 2)
        parcel = Parcel.decode(plain, protocol, receiver.role)
        own = [arrays[part].tolist() for part in READ[name][receiver.role]]
        assert [array.tolist() for array in parcel.arrays] == own
        carried = [parties["analyzer"].open_anonymous("release", 2, sealed) for sealed in parcel.carried]
        assert carried == [messages.encode([arrays[part]]) for part in CARRIED.get(name, [])]


# -- a silo that waits for what became of its earlier releases ---------------------------------------------------------

DRAWN = [np.arange(5, dtype=np.int64) * (sync + 1) + sync**2 for sync in range(3)]


def stored(sync, state):
    drawn = messages.encode([DRAWN[sync]])
    return StoredRelease(sync, state, 1, drawn, drawn if state is ReleaseState.INCLUDED else None, None)


@pytest.fixture
def waiting(tmp_path):
    """A silo whose messages make up for those that did not arrive, and the analyzer."""
    plan = small_plan(trust="silo", mechanism="tree")
    homes = founding.local(tmp_path / "homes", plan, [f"silo-{n}" for n in range(3)], Timing(10.0, start=0.0))
    analyzer = next(home.party() for home in homes if home.settings.role == "analyzer")
    return plan.protocol, Sealer(next(home.party() for home in homes if home.settings.name == "silo-0")), analyzer


def test_nothing_is_sealed_before_it_is_known_what_became_of_the_earlier_ones(waiting):
    _, sealer, _ = waiting
    assert sealer.at_once(0, (DRAWN[0],), NONE) is None
    S = ReleaseState
    for states, ready in [
        ([S.DRAWN], [0]),
        ([S.DRAWN, S.DRAWN], [0]),
        ([S.SENT, S.DRAWN], []),
        ([S.SEALED, S.DRAWN], []),
        ([S.INCLUDED, S.DRAWN], [1]),
        ([S.MISSED, S.DRAWN], [1]),
        ([S.INCLUDED, S.SENT], []),
        ([S.INCLUDED, S.MISSED, S.DRAWN], [2]),
        ([S.SENT, S.MISSED, S.DRAWN], []),
        ([S.INCLUDED, S.INCLUDED, S.INCLUDED], []),
    ]:
        releases = [stored(sync, state) for sync, state in enumerate(states)]
        assert [sync for sync, _ in sealer.settled(releases, lambda sync: NONE)] == ready


@pytest.mark.parametrize("missed", [(), (0,), (1,), (0, 1)])
def test_what_is_sealed_makes_up_for_what_did_not_arrive(waiting, missed):
    protocol, sealer, analyzer = waiting
    states = [ReleaseState.MISSED if sync in missed else ReleaseState.INCLUDED for sync in range(2)]
    releases = [stored(sync, state) for sync, state in enumerate([*states, ReleaseState.DRAWN])]
    ((sync, wire),) = sealer.settled(releases, lambda sync: NONE)
    sent = messages.decode(wire.sent)[0]
    decoder = protocol.encoder.decoder_row(2)
    prefix = sum(decoder[j] * DRAWN[j] for j in range(3))
    arrived = sum(decoder[j] * DRAWN[j] for j in range(2) if j not in missed)
    np.testing.assert_allclose(arrived + decoder[2] * sent, prefix)
    context, plain = analyzer.open(messages.unpack(wire.sealed)[0])
    assert (sync, context.sync) == (2, 2)
    assert Parcel.decode(plain, protocol, "analyzer").arrays[0].tolist() == sent.tolist()
