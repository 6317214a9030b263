"""Sums that forget: every encoder decodes them, everything else is read off the matrix, and noise stops growing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, adaptive, clock, every
from fedbandit._validate import ArgumentError
from fedbandit.privacy import ledger
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.privacy.spending import spent
from fedbandit.protocol import composition, mechanisms
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.mechanisms import optimal

FORGETTING = ("toeplitz", "batches", "blt", "early", "optimal")
WEIGHT = 0.9


def plan_of(**fields: Any) -> Plan:
    given = {"silos": 3, "rounds": 12, "dim": 2, "privacy": Privacy(4.0, 1e-5), "schedule": every(1), "forget": WEIGHT}
    return Plan(**{**given, **fields})


def weighted(size: int, forget: float) -> Any:
    rows, columns = np.indices((size, size))
    return np.where(rows >= columns, forget ** np.maximum(rows - columns, 0.0), 0.0)


@pytest.mark.parametrize(("size", "forget", "noise"), [(365, 1.0, 2.944), (365, 0.97, 1.800), (1095, 0.97, 1.800)])
def test_noise_of_the_worst_sum_stops_growing(size: int, forget: float, noise: float) -> None:
    assert mechanisms.encoder("toeplitz", size, forget).worst_prefix == pytest.approx(noise, abs=1e-3)


@pytest.mark.parametrize("name", FORGETTING)
@pytest.mark.parametrize("forget", [0.97, 0.5])
def test_the_decoder_gives_weighted_sums_and_no_entry_is_negative(name: str, forget: float) -> None:
    encoder = mechanisms.encoder(name, 20, forget)
    np.testing.assert_allclose(encoder.decoder @ encoder.coefficients, weighted(20, forget), atol=1e-12)
    for sync, weights in enumerate(weighted(20, forget)):
        np.testing.assert_allclose(encoder.target_row(sync), weights[: sync + 1], rtol=1e-12)
    assert not encoder.has_negative
    assert encoder.decoder.min() > -1e-4  # C is rounded, and B is that of the rounded one
    assert encoder.worst_prefix < mechanisms.encoder(name, 20).worst_prefix


@pytest.mark.parametrize("name", FORGETTING)
def test_streams_are_the_matrices(name: str) -> None:
    encoder, rng = mechanisms.encoder(name, 15, WEIGHT), np.random.default_rng(0)
    batches = rng.integers(-(10**6), 10**6, (15, 4))
    encoding, decoding = encoder.init((4,)), encoder.init_decoder((4,))
    for k in range(15):
        encoding, release = encoder.step(encoding, batches[k])
        decoding, decoded = encoder.decode_step(decoding, release)
        exact = encoder.row(k) @ batches[: k + 1] * 2**encoder.fraction_bits
        np.testing.assert_allclose(release, exact, atol=max(0.5, encoder.rounding_units))
        np.testing.assert_allclose(decoded, encoder.target_row(k) @ batches[: k + 1], atol=0.1)


def test_the_square_root_is_one() -> None:
    encoder = mechanisms.encoder("toeplitz", 60, 0.97)
    np.testing.assert_allclose(encoder.coefficients @ encoder.coefficients, weighted(60, 0.97), atol=6e-3)


def test_buffers_are_as_good_as_the_square_root() -> None:
    assert mechanisms.encoder("blt", 1000, 0.97).worst_prefix <= 1.002 * 1.8004


def test_the_optimum_is_one_for_weighted_sums_too() -> None:
    """By duality no factorisation has less noise than a nuclear norm."""
    p = optimal.weights(40, 0.97)
    least = np.linalg.norm(np.sqrt(p)[:, None] * weighted(40, 0.97) * np.sqrt(p[::-1]), "nuc")
    noise = mechanisms.encoder("optimal", 40, 0.97).worst_prefix
    assert least <= noise <= 1.002 * least
    assert noise < mechanisms.encoder("toeplitz", 40, 0.97).worst_prefix


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central", "shuffle"])
@pytest.mark.parametrize("name", ["toeplitz", "blt", "batches"])
def test_decoded_sums_have_the_promised_mean_and_variance(trust: str, name: str) -> None:
    """Accepts the noise law of the plan, to 4 standard errors, and rejects 1.3 times as much."""
    trials, rng = 3_000, np.random.default_rng(1)
    plan = plan_of(trust=trust, mechanism=name)
    protocol, batches = plan.protocol, rng.integers(0, 2**plan.bits, (12, 1, 3, plan.protocol.width))
    state = composition.init(protocol, (trials,))
    for batch in batches:
        whole = np.broadcast_to(batch, (trials, 3, protocol.width))
        state = composition.step(protocol, state, whole, SimulatedNoise(rng))
    expected = weighted(12, WEIGHT)[-1] @ batches.sum(axis=2)[:, 0] * 2.0**-plan.bits
    bias = (state.prefix - expected)[:, : plan.dim]
    claimed = plan.noise_law.bias[-1]
    error = 4 / np.sqrt(2 * bias.size)
    assert abs(bias.mean()) < 4 * claimed / np.sqrt(bias.size)
    assert abs(bias.std() / claimed - 1) < error
    assert abs(bias.std() / (1.3 * claimed) - 1) > error


def _decoded(protocol: Protocol, batches: Any, missed: set[int]) -> list[Any]:
    """Sums after each sync that a single silo is in, as a live silo sends: without noise."""
    silent = SimulatedNoise(np.random.default_rng(0))
    silo, analyzer = protocol.init((1,)), protocol.init_analyzer()
    drawn: list[Message] = []
    arrived: dict[int, Message] = {}
    seen: list[Any] = []
    for k, batch in enumerate(batches):
        silo, encoded = protocol.encoder.step(silo, batch[None])
        drawn.append((encoded[0],))
        if k in missed:
            analyzer = protocol.skip(analyzer)
            seen.append(None)
            continue
        arrived[k] = protocol.outgoing(drawn, dict(arrived))
        analyzer, decoded = protocol.decode(analyzer, protocol.passed_on((arrived[k][0][None],), silent))
        seen.append(decoded)
    return seen


def test_a_silo_that_was_away_catches_up_or_is_left_out_with_the_weights_it_says() -> None:
    rng, missed = np.random.default_rng(2), {2, 3, 6}
    for trust in ("silo", "none"):  # makes up for it, and does not
        plan = plan_of(trust=trust, privacy=Privacy(4.0, 1e-5) if trust == "silo" else None, silos=1)
        batches = rng.integers(0, 2**plan.bits, (12, plan.protocol.width))
        for k, decoded in enumerate(_decoded(plan.protocol, batches, missed)):
            if decoded is None:
                continue
            weights = plan.protocol.kept_weights(missed, k)
            np.testing.assert_allclose(decoded, weights @ batches[: k + 1] * 2.0**-plan.bits, atol=1e-4)
            full = plan.encoder.target_row(k)
            assert np.all(weights <= full + 1e-12)
            assert np.all(weights >= -1e-12)
            assert np.allclose(weights, full) is (trust == "silo" or k < 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"mechanism": "tree"},
        {"acting": "eager", "trust": "silo"},
        {"calibration": "paper", "trust": "silo"},
        {"schedule": adaptive(2.0), "trust": "silo"},
        {"forget": 0.0},
        {"forget": 1.01},
        {"mechanism": "batches", "trust": "silo", "decode_at": "silo"},
    ],
    ids=str,
)
def test_what_cannot_forget_says_so(fields: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as error:
        _ = plan_of(**fields).guarantee
    assert error.value.field == "forget"


def test_a_weight_that_leaves_nothing_is_refused_where_it_cannot_be_fitted() -> None:
    with pytest.raises(ArgumentError, match="forget must be larger for mechanism 'blt', got 1e-09"):
        mechanisms.encoder("blt", 365, 1e-9)


def test_a_plan_that_forgets_nothing_keeps_its_identity() -> None:
    plan = plan_of(forget=1.0)
    assert "forget" not in plan.as_dict()
    assert plan.hash != plan_of().hash
    assert Plan.from_dict(plan_of().as_dict()) == plan_of()
    assert "each sync multiplies the weight of the past by 0.9" in str(plan_of().guarantee)
    assert "of the past" not in str(plan.guarantee)


def test_visits_are_remembered_by_their_weights() -> None:
    plan = plan_of(rounds=12, schedule=every(4))
    assert [plan.remembered(round_) for round_ in (2, 4, 6, 8, 12)] == pytest.approx([2, 4, 6, 7.6, 10.84])
    assert plan.changed(forget=1.0).remembered(12) == 12
    assert plan.radius(12) < plan.changed(forget=1.0).radius(12)


def test_local_noise_is_forgotten_with_those_who_drew_it() -> None:
    plan = plan_of(trust="local", mechanism="batches", schedule=every(4))
    gain = plan.protocol.prefix_gain(plan.times)
    assert gain**2 == pytest.approx([12, 12 * (1 + 0.81), 12 * (1 + 0.81 + 0.81**2)])


@pytest.mark.parametrize("apart", [0, 4])
@pytest.mark.parametrize("mechanism", ["toeplitz", "blt", "early"])
def test_the_ledger_adds_up_to_the_promise(mechanism: str, apart: int) -> None:
    budget = Privacy(1.0, 1e-6, participations=2, apart=apart)
    plan = plan_of(trust="silo", mechanism=mechanism, schedule=clock(60), privacy=budget)
    entries, head = [], ledger.GENESIS
    for sync in range(12):
        event = plan.release("here", 1, sync)
        assert event is not None
        assert ledger.event_from_json(ledger.event_to_json(event)) == event
        assert '"forget":0.9' in ledger.event_to_json(event)
        entries.append(ledger.append(head, event))
        head = entries[-1].hash
    assert spent(entries, mechanisms.encoder).epsilon == pytest.approx(1.0, rel=1e-9)
    assert spent(entries[:6], mechanisms.encoder).epsilon < 1.0
