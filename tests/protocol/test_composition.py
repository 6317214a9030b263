"""One sync of a whole federation: `step` is `send` and `receive`, and a skipped sync moves the decoder alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.composition import State
from fedbandit.protocol.trusts.silo import DecodedSilo
from tests.protocol.test_protocols import ALL, BITS, SILOS, SYNCS, exact_prefixes, points

LEADS: list[tuple[int, ...]] = [(), (2,), (2, 3)]
EXACT = [name for name in ALL if not name.startswith("vector-sum")]  # P_vec rounds at random


def source() -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(11))


def arrays(state: State) -> list[bytes]:
    return [array.tobytes() for array in (*state.silos.memory, *state.analyzer.memory, state.prefix)]


def collected(protocol: Protocol, state: State, users: np.ndarray) -> np.ndarray:
    """A batch with the same users' noise each time it is asked for."""
    return protocol.collect(state.silos, users, SimulatedNoise(np.random.default_rng(5)))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", ALL)
def test_before_the_first_sync_nothing_is_known(name: str, lead: tuple[int, ...]) -> None:
    protocol = ALL[name].protocol
    state = composition.init(protocol, lead)
    assert (state.silos.done, state.analyzer.done) == (0, 0)
    assert state.prefix.shape == (*lead, protocol.width)
    assert not state.prefix.any()


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", ALL)
def test_a_step_is_a_send_and_a_receive(name: str, lead: tuple[int, ...]) -> None:
    protocol = ALL[name].protocol
    at_once = in_two = composition.init(protocol, lead)
    noise, same_noise = source(), source()
    for k, users in enumerate(points(lead), 1):
        batch = collected(protocol, at_once, users)
        at_once = composition.step(protocol, at_once, batch, noise)
        sending, transcript = composition.send(protocol, in_two, batch, same_noise)
        assert sending.analyzer is in_two.analyzer
        assert sending.prefix is in_two.prefix  # nothing was decoded yet
        in_two = composition.receive(protocol, sending, transcript)
        assert in_two.silos is sending.silos
        assert arrays(at_once) == arrays(in_two)
        assert (at_once.silos.done, at_once.analyzer.done) == (k, k)
        assert at_once.prefix.shape == (*lead, protocol.width)


@pytest.mark.parametrize("name", ALL)
def test_what_the_analyzer_holds_is_what_s_passes_on_and_its_own_parts(name: str) -> None:
    protocol = ALL[name].protocol
    state = composition.init(protocol, (2,))
    batch = collected(protocol, state, points((2,))[0])
    noise = source()
    _, transcript = composition.send(protocol, state, batch, noise)
    assert len(transcript.sent) == len(transcript.held) == len(protocol.parts)
    for part, sent, held in zip(protocol.parts, transcript.sent, transcript.held, strict=True):
        assert sent.shape == (2, SILOS, protocol.width)
        assert held.dtype == part.dtype
        if protocol.has_mixer and not part.through_mixer:
            assert held is sent
    assert protocol.has_mixer == any(part.through_mixer for part in protocol.parts)


def test_some_silos_may_play_for_all() -> None:
    protocol = ALL["silo, tree"].protocol
    state = composition.init(protocol, (4,), silos=1)
    batch = points((4,), silos=1)[0].sum(axis=-2)
    state, transcript = composition.send(protocol, state, batch, source())
    assert transcript.sent[0].shape == (4, 1, protocol.width)
    assert composition.receive(protocol, state, transcript).prefix.shape == (4, protocol.width)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", ALL)
def test_a_skipped_sync_leaves_the_prefix_and_moves_the_decoder(name: str, lead: tuple[int, ...]) -> None:
    """As if a release of zeros had come, which for P_alt, where a message is a whole prefix sum, changes nothing."""
    protocol = ALL[name].protocol
    state = composition.init(protocol, lead)
    for k, users in enumerate(points(lead)):
        batch = collected(protocol, state, users)
        if k % 2 == 0:
            state = composition.step(protocol, state, batch, source())
            continue
        sent, _ = composition.send(protocol, state, batch, source())
        skipped = composition.skip(protocol, sent)
        assert skipped.prefix is state.prefix
        assert skipped.silos is sent.silos
        assert skipped.analyzer.done == state.analyzer.done + 1 == sent.silos.done
        if isinstance(protocol, DecodedSilo):
            assert skipped.analyzer.memory == state.analyzer.memory == ()
        else:
            zeros = np.zeros((*lead, protocol.width))
            expected, _ = protocol.encoder.decode_step(state.analyzer, zeros)
            for moved, wanted in zip(skipped.analyzer.memory, expected.memory, strict=True):
                np.testing.assert_array_equal(moved, wanted)
        state = skipped
    assert state.analyzer.done == SYNCS


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", EXACT)
def test_after_a_skipped_sync_batches_have_the_weights_of_silos_that_missed_it(
    name: str, lead: tuple[int, ...], no_noise: SimulatedNoise
) -> None:
    protocol, batches = ALL[name].protocol, points(lead)
    missed = (1, 4)
    state = composition.init(protocol, lead)
    for k, users in enumerate(batches):
        state, transcript = composition.send(protocol, state, protocol.collect(state.silos, users, no_noise), no_noise)
        if k in missed:
            state = composition.skip(protocol, state)
            continue
        state = composition.receive(protocol, state, transcript)
        totals = np.diff(exact_prefixes(batches), axis=0, prepend=0.0)[: k + 1]
        weights = np.ones(k + 1) if isinstance(protocol, DecodedSilo) else Protocol.kept_weights(protocol, missed, k)
        expected = np.tensordot(weights, totals, axes=1)
        np.testing.assert_allclose(state.prefix, expected, rtol=0, atol=2.0**-BITS)


@pytest.mark.parametrize("name", ALL)
def test_s_draws_noise_of_its_own_just_where_the_protocol_says_so(name: str) -> None:
    protocol = ALL[name].protocol
    state = composition.init(protocol, (2,))
    _, transcript = composition.send(protocol, state, collected(protocol, state, points((2,))[0]), source())
    held = tuple(transcript.sent[i] for i in protocol.mixed_parts)
    first, again = (protocol.mix(held, SimulatedNoise(np.random.default_rng(seed))) for seed in (1, 2))
    totals = [sum(part.astype(np.int64).sum(axis=-2) for part in mixed) for mixed in (first, again)]
    assert np.array_equal(*totals) == (not protocol.mixer_draws)  # a permutation changes no total


def test_noise_on_some_numbers_alone_is_drawn() -> None:
    protocol = replace(ALL["silo, toeplitz"].protocol, scales=Scales(0.0, 3.0, 0.0))
    drawn = protocol.draw(source(), (50,)) != 0
    diagonal = [2, 4]  # of [b1, b2, w11, w12, w22]
    assert drawn[:, diagonal].all()
    assert drawn.sum() == 100
    assert not replace(protocol, scales=Scales.flat(0.0)).draw(source(), (50,)).any()
