"""A live silo with a part of theta of its own: served by what it released to itself, and by no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit import Federation, Plan, Privacy, clock
from fedbandit._validate import ArgumentError
from fedbandit.audit.live_game import live_reduced
from fedbandit.federation.one_process import StillClock
from fedbandit.federation.silo.releasing import own_after, own_sums
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.silo_store import OWN_RELEASE
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import personal_model, public_model
from fedbandit.privacy.ledger import Gaussian
from fedbandit.protocol.personal import own_entries

HOUR = 3600.0


def plan_of(**fields: Any) -> Plan:
    given = {"silos": 3, "rounds": 6, "dim": 2, "schedule": clock(HOUR), "centre": 0.5, "confidence": "practical"}
    return Plan(**{**given, "privacy": Privacy(2_000.0, 1e-6), "personal": (0,), **fields})


def people(silo: Silo, weight: float, rng: np.random.Generator, count: int = 60) -> None:
    """Each has one action; how they like it is the silo's own matter."""
    x = rng.standard_normal((count, 1, 2))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    made = silo.decide_many(x)
    rewards = 0.5 + x[:, 0] @ np.array([weight, 0.3]) / 2
    silo.reward_all([(one.id, float(reward)) for one, reward in zip(made, rewards, strict=True)])


@pytest.mark.parametrize("endless", [False, True])
def test_silos_that_differ_are_served_by_models_that_do(endless: bool) -> None:
    """Weights 0.8, -0.8 and 0 of one feature: the public model has their mean, each silo its own."""
    plan, rng = plan_of(**({"endless": True, "forget": 0.9} if endless else {})), np.random.default_rng(0)
    weights = {"a": 0.8, "b": -0.8, "c": 0.0}
    with Federation.local(plan, list(weights)) as federation:
        for _ in range(5):
            for name, weight in weights.items():
                people(federation.silos[name], weight, rng)
            federation.tick()
        thetas = {name: silo.model()[1] for name, silo in federation.silos.items()}
        spent = [silo.status()["epsilon_spent"] for silo in federation.silos.values()]
    assert [thetas[name][0] for name in weights] == pytest.approx([0.4, -0.4, 0.0], abs=0.08)
    assert len({thetas[name][1] for name in weights}) == 1  # what is shared is the same number everywhere
    assert thetas["a"][1] == pytest.approx(0.15, abs=0.05)
    assert max(spent) <= 2_000.0


def _learnt(silo: Silo, sync: int) -> None:
    """A model comes in; which one does not matter here."""
    prefix = np.array([0.0, 6.0, 20.0, 0.0, 20.0])
    silo.learn(sync, Outcome(prefix, np.ones(3, dtype=np.int64)), included=False)


def test_what_serves_is_what_was_released_and_outlives_restarts(tmp_path: Path) -> None:
    """At a small epsilon noise and data are told apart at once: the model follows the noisy numbers on disk."""
    plan, clocks, rng = plan_of(privacy=Privacy(1.0, 1e-6)), StillClock(), np.random.default_rng(1)
    released, thetas = [], []
    for sync in range(3):
        with Silo.open(tmp_path / "silo.db", plan, clock=clocks) as silo:
            people(silo, 0.8, rng)
            clocks.now += HOUR
            assert silo.tick() == [sync]
            stored = silo.store.release(1, sync)
            assert stored is not None
            released.append(messages.decode(stored.drawn or b"")[2])
            _learnt(silo, sync)
            thetas.append(silo.model()[1])
            sums = own_sums(plan, silo.store.state(1, OWN_RELEASE))
        decoder = plan.encoder.decoder_row(sync) @ np.stack(released) * 2.0**-plan.protocol.release_bits
        np.testing.assert_allclose(sums, decoder, rtol=1e-9)
        assert not sums[~own_entries(2, (0,))].any()
        public = public_model(plan, sync, np.array([0.0, 6.0, 20.0, 0.0, 20.0]), sync + 1)
        np.testing.assert_allclose(personal_model(plan, public, sums).model.theta, thetas[-1])
        with Silo.open(tmp_path / "silo.db", plan, clock=clocks) as silo:
            assert silo.model()[1] == thetas[-1]


def test_nothing_more_is_sent_and_what_it_costs_is_in_the_ledger(tmp_path: Path) -> None:
    plan, usual = plan_of(privacy=Privacy(1.0, 1e-6)), plan_of(privacy=Privacy(1.0, 1e-6), personal=())
    with Federation.local(plan, folder=tmp_path) as federation:
        federation.tick()
        entry = federation.silos["silo-00"].store.ledger()[0]
        assert "noisier, to the silo itself" in entry.event
    cost, alone = (one.release("a", 1, 0) for one in (plan, usual))
    assert cost is not None
    assert alone is not None
    assert isinstance(cost.cost, Gaussian)
    assert isinstance(alone.cost, Gaussian)
    assert cost.cost.sigma == pytest.approx(alone.cost.sigma)  # together they spend what one spends alone
    assert plan.bytes_per_silo == usual.bytes_per_silo


def test_releases_that_were_given_up_go_by_empty() -> None:
    plan = plan_of()
    first = own_after(plan, None, (np.zeros(5), np.zeros(5), np.array([1, 0, 2, 3, 0]) << plan.protocol.release_bits))
    after = own_after(plan, first, None)
    assert after is not None
    expected = plan.encoder.decoder_row(1)[0] * np.array([1.0, 0, 2, 3, 0])
    np.testing.assert_allclose(own_sums(plan, after), expected)
    assert own_after(plan.changed(personal=()), None, None) is None


def test_it_is_audited_where_everything_is_seen() -> None:
    with pytest.raises(ArgumentError, match="no message carries"):
        live_reduced(plan_of())
