"""Who can read what of a release: each receiver its own arrays, and nobody else's."""

import numpy as np
import pytest

from fedbandit.federation.setup import founding
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.heads import NONE
from fedbandit.federation.wire.parcels import Parcel
from tests.federation.small import small_plan

PLANS = {
    "central": small_plan(trust="central"),
    "secure-sum": small_plan(),
    "vector-sum": small_plan(trust="vector-sum", mechanism="tree", calibration="paper"),
}
READ = {  # by receiver, the parts of a message that it reads
    "central": {"analyzer": [0]},
    "secure-sum": {"mixer": [0], "analyzer": [1]},
    "vector-sum": {"mixer": [0]},
}


@pytest.mark.parametrize("name", PLANS)
def test_every_receiver_gets_its_own_parts_and_no_others(name, tmp_path):
    plan = PLANS[name]
    homes = founding.local(tmp_path / "homes", plan, [f"silo-{n}" for n in range(3)], Timing(10.0, start=0.0))
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
        assert parcel.carried == ()
