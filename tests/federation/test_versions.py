"""Versions that meet: neighbours work together, others say why not, and nobody spends anything before."""

import asyncio

import pytest

import fedbandit as fb
from fedbandit.federation.silo import greetings
from fedbandit.federation.syncs import keeper as keepers
from fedbandit.federation.wire import envelopes
from fedbandit.federation.wire.envelopes import FORMAT, EnvelopeError
from fedbandit.federation.wire.heads import Greeting
from tests.federation.test_one_process import PLANS, visit

PLAN = PLANS["secure-sum"]


@pytest.mark.parametrize("module", [keepers, greetings], ids=["mixer and analyzer", "silos"])
def test_versions_without_a_common_format_spend_nothing_and_say_why(monkeypatch, module):
    monkeypatch.setattr(module, "FORMAT", FORMAT + 1)
    with fb.Federation.local(PLAN) as federation:
        for silo in federation.silos.values():
            visit(silo, 2)
        with pytest.raises(RuntimeError, match=r"does not read messages of format \d"):
            federation.tick()
        for silo in federation.silos.values():
            assert silo.store.ledger() == []
            assert len(silo.store.batch(1, 0)) == 2  # they wait, and count when the versions fit
        assert federation.analyzer.store.all() == []


def test_a_neighbour_that_still_reads_the_earlier_format_works(monkeypatch):
    """What a new version does that keeps reading what the last one writes, and writes it until all have moved on."""

    class Wider(Greeting):
        decode = Greeting.decode

        def __new__(cls, oldest, newest, *words, **named):
            return Greeting(oldest, newest + 1, *words, **named)

    monkeypatch.setattr(keepers, "Greeting", Wider)
    with fb.Federation.local(PLAN) as federation:
        assert federation.tick() == [0]


def test_greetings_of_a_later_format_are_read_and_nothing_else_is(monkeypatch):
    """Greetings carried the format of all envelopes: two versions would never have learnt of each other."""
    with fb.Federation.local(PLAN) as federation:
        agent = federation._agents["silo-00"]
        assert federation.mixer is not None
        mixer, receiver = federation.mixer.party, agent.party.public
        monkeypatch.setattr(envelopes, "FORMAT", FORMAT + 1)
        monkeypatch.setattr(envelopes, "MAGIC", b"FBE" + str(FORMAT + 1).encode())
        greeting = mixer.seal("greeting", receiver, 0, Greeting(FORMAT + 1, FORMAT + 1).encode())
        model = mixer.seal("model", receiver, 0, b"x")
        monkeypatch.undo()
        assert envelopes.claimed(greeting).kind == "greeting"
        with pytest.raises(EnvelopeError, match=f"not an envelope of format {FORMAT}"):
            envelopes.claimed(model)
        asyncio.run(agent.handle([greeting]))
        assert "another plan or format now" in (agent.problem or "")
        with pytest.raises(RuntimeError, match="does not tick"):
            federation.tick()
        assert agent.silo.store.ledger() == []
