"""What a protocol goes on with after a sync that was given up: a batch that nobody was in."""

import numpy as np
import pytest

from fedbandit._arrays import Floats, Integers
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import every, growing


class Halves(SimulatedNoise):
    """Noise that is zero, and rounding to the nearest."""

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        return np.zeros((*lead, len(scales)), dtype=np.int64)

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        return np.full(shape, round(trials * probability), dtype=np.int64)

    def rounded_total(self, values: Floats) -> Integers:
        return np.asarray(np.rint(values.sum(axis=-2)), dtype=np.int64)


HALVES = Halves(np.random.default_rng(0))


@pytest.mark.parametrize(
    "fields",
    [
        {"trust": "silo", "decode_at": "silo", "mechanism": "batches"},
        {"trust": "silo", "decode_at": "silo", "mechanism": "tree"},
        {"trust": "vector-sum", "mechanism": "tree", "calibration": "exact"},
        {"trust": "silo", "mechanism": "blt"},
    ],
    ids=lambda fields: " ".join(fields.values()),
)
def test_after_a_loss_the_sums_are_those_of_a_silo_that_nobody_came_to(fields):
    """Without noise: after sync 5 was given up, a silo sends what one sends that nobody came to in it.

    Nobody came in sync 4 either: under P_alt, what was in the lost node would be lost."""
    protocol = Plan(1, 16, 2, Privacy(1.0, 1e-5), schedule=every(2), **fields).protocol
    visits = np.random.default_rng(3).integers(-(2**10), 2**10, (8, 2, protocol.width)) << 8
    visits[[4, 5]] = 0
    lost, there = protocol.init(), protocol.init()
    for sync, points in enumerate(visits):
        if sync == 5:
            lost = protocol.without(lost)
        else:
            lost, sent = protocol.release(lost, protocol.collect(lost, points, HALVES), HALVES)
        there, told = protocol.release(there, protocol.collect(there, points, HALVES), HALVES)
        if sync != 5:
            for one, other in zip(sent, told, strict=True):
                assert np.abs(one - other).max() <= 4  # roundings at random
        for one, other in zip(lost.memory, there.memory, strict=True):
            assert one.shape == other.shape
            assert one.dtype == other.dtype


@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_what_counts_leave_out_is_a_batch_of_zeros(calibration):
    """To the digit, for batches of every size and at every level of the tree."""
    protocol = Plan(
        1, 40, 2, Privacy(1.0, 1e-5), schedule=growing(1.3, 3), trust="vector-sum", mechanism="tree",
        calibration=calibration,
    ).protocol  # fmt: skip
    assert isinstance(protocol, VectorSumProtocol)
    assert len(set(protocol.batch_users)) > 3
    random, state = np.random.default_rng(4), protocol.init()
    for users in protocol.batch_users:
        empty = np.zeros((users, protocol.width), dtype=np.int64)
        expected, _ = protocol.release(state, protocol.collect(state, empty, HALVES), HALVES)
        left_out = protocol.without(state)
        assert left_out.done == expected.done
        assert (left_out.memory[0] == expected.memory[0]).all()
        points = random.integers(-(2**10), 2**10, (users, protocol.width)) << 8
        state, _ = protocol.release(state, protocol.collect(state, points, HALVES), HALVES)
