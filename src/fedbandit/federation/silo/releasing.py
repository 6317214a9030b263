"""The release of a batch, by the plan's protocol and nothing else: collect, encode, add exact noise.

No person's contribution is longer than the sensitivity assumes. Features enter with norm at most 1 and rewards within h
of the plan's centre, so the integers of a contribution, bias b and matrix W, obey
    ratio |b|^2 + |W|^2 <= (2^bits sqrt(ratio h^2 + 1) + sqrt(ratio dim + dim^2) / 2)^2
with the plan's ratio and h. Floating-point errors, 2^-50 of a number, are within the last term: with two features or
more that term cannot be reached, and with one feature the largest numbers are on the grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit import statistics
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.silo.decisions.actions import into_ball
from fedbandit.federation.store.rewards import CountedRow
from fedbandit.federation.wire import messages
from fedbandit.plan import Plan
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Stream

__all__ = ["draw", "own_after", "own_sums", "planned_sizes", "prepare"]


def draw(plan: Plan, state: Stream, rows: Sequence[CountedRow], noise: ExactNoise) -> tuple[Stream, Message]:
    """Release the next batch. The noise must be an `ExactNoise`, a type that has no seed. The rows must be
    `CountedRow`s, a type that only rows of a batch have, and nothing else that a silo stores of its people."""
    if type(noise) is not ExactNoise:
        raise TypeError(f"noise must be an ExactNoise, got {type(noise).__name__}")
    if any(type(row) is not CountedRow for row in rows):
        raise TypeError("rows must all be rows of a batch, of people who count: nothing is released")
    protocol = plan.protocol
    batch = protocol.collect(state, _points(plan, state.done, rows), noise)
    return protocol.release(state, batch, noise)


def own_after(plan: Plan, before: bytes | None, message: Message | None) -> bytes | None:
    """The state of a silo's own decoder after one more release to itself, with the sums decoded from all of them; None
    if the plan has no personal part. A release that was given up (`message` is None) counts as empty."""
    if not plan.personal:
        return None
    state = _own_state(plan, before)
    released = np.zeros(plan.protocol.width) if message is None else message[-1]
    decoder, decoded = plan.encoder.decode_step(Stream(state.done, state.memory[:-1]), released)
    return messages.encode_stream(Stream(decoder.done, (*decoder.memory, decoded)))


def own_sums(plan: Plan, state: bytes | None) -> Floats:
    """The decoded sums of what a silo has released to itself so far, in natural units (width,)."""
    return np.asarray(_own_state(plan, state).memory[-1] * 2.0**-plan.bits)


def _own_state(plan: Plan, state: bytes | None) -> Stream:
    if state is not None:
        return messages.decode_stream(state)
    width = plan.protocol.width
    begun = plan.encoder.init_decoder((width,))
    return Stream(begun.done, (*begun.memory, np.zeros(width)))


def prepare(protocol: Protocol, noise: ExactNoise) -> None:
    """Draw the Gaussian noise of the next release ahead of its tick, if silos draw any."""
    if not protocol.needs_points and not protocol.mixer_draws and protocol.drawn_scales.any():
        noise.prepare(protocol.drawn_scales)


def _points(plan: Plan, sync: int, rows: Sequence[CountedRow]) -> Integers:
    """The contributions of a batch (users, width). If the protocol needs every point, a batch has as many rows as
    planned, with empty ones for those that are missing. Otherwise one row holds the sum: `collect` uses no more."""
    x, y = _checked(plan, rows)
    if not plan.protocol.needs_points:
        return statistics.summed(x, y, plan.bits, plan.centre)[None]
    sizes = planned_sizes(plan)
    assert sizes is not None
    empty = np.zeros((sizes[sync] - len(rows), plan.protocol.width), dtype=np.int64)
    return np.concatenate([statistics.contributions(x, y, plan.bits, plan.centre), empty])


def planned_sizes(plan: Plan) -> list[int] | None:
    """How many people each batch holds, if the protocol needs every point; otherwise as many as come."""
    return np.diff((0, *plan.times)).tolist() if plan.protocol.needs_points else None


def _checked(plan: Plan, rows: Sequence[CountedRow]) -> tuple[Floats, Floats]:
    """Features (users, dim) and rewards of a batch, within their bounds."""
    x = np.frombuffer(b"".join(features for features, _ in rows)).reshape(len(rows), plan.dim)
    y = np.array([reward for _, reward in rows])
    inside = into_ball(x)
    if inside is None or not ((y >= 0) & (y <= 1)).all():
        raise ValueError("the store holds features or rewards beyond their bounds: nothing is released")
    return inside, y
