"""The release of a batch, by the protocol of the plan and nothing else: collect, encode, add exact noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit.statistics import contributions, width
from fedbandit.federation import messages
from fedbandit.federation.noise import ExactNoise
from fedbandit.plan import Plan
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Stream

LIVE_TRUSTS = ("none", "silo", "shuffle", "vector-sum", "secure-sum", "central")
CHUNK = 4096  # users turned into contributions at a time


def check_live(plan: Plan) -> None:
    """Refuse plans that cannot run live with the guarantee they print."""
    if plan.trust not in LIVE_TRUSTS:
        raise ValueError(f"trust must be one of {', '.join(LIVE_TRUSTS)} in a live federation, got {plan.trust!r}")
    if plan.acting != "lazy":
        raise ValueError(f"acting must be 'lazy' in a live federation, got {plan.acting!r}")
    if plan.privacy is not None and not plan.guarantee.promised:
        raise ValueError(f"plan must have a guarantee to run live: {plan.guarantee.statement}")


def draw(plan: Plan, state: Stream, rows: Sequence[tuple[bytes, float]], noise: ExactNoise) -> tuple[Stream, Message]:
    """Release the next batch. Only an `ExactNoise` will do: its type has no seed to set."""
    if type(noise) is not ExactNoise:
        raise TypeError(f"noise must be an ExactNoise, got {type(noise).__name__}")
    protocol = plan.protocol
    batch = protocol.collect(state, _points(plan, state.step, rows), noise)
    return protocol.release(state, batch, noise)


def prepare(protocol: Protocol, noise: ExactNoise) -> None:
    """Draw the next Gaussian ahead of its tick."""
    if not protocol.needs_points and protocol.trust != "central":
        scales = np.array(protocol.scales) * 2.0**protocol.release_bits
        if scales.any():
            noise.prepare(scales)


def _points(plan: Plan, step: int, rows: Sequence[tuple[bytes, float]]) -> NDArray[np.int64]:
    """Contributions of a batch (users, width). Where the protocol counts every point (vector-sum), a batch has as
    many as planned, the missing ones empty; elsewhere one row holds the sum, which is all that `collect` looks at."""
    parts = [_contributions(plan, rows[at : at + CHUNK]) for at in range(0, len(rows), CHUNK)]
    if plan.protocol.needs_points:
        users = int(np.diff((0, *plan.times))[step])
        empty = np.zeros((users - len(rows), width(plan.dim)), dtype=np.int64)
        return np.concatenate([*parts, empty])
    total = np.zeros((1, width(plan.dim)), dtype=np.int64)
    for part in parts:
        total += part.sum(axis=0)
    return total


def _contributions(plan: Plan, rows: Sequence[tuple[bytes, float]]) -> NDArray[np.int64]:
    x = np.frombuffer(b"".join(features for features, _ in rows)).reshape(len(rows), plan.dim)
    y = np.array([reward for _, reward in rows])
    return contributions(x, y, plan.bits, plan.centre)


def load_state(protocol: Protocol, data: bytes | None) -> Stream:
    """A stream's state as it was written, bit for bit; the initial one if there is none."""
    return protocol.init() if data is None else parse_state(data)


def parse_state(data: bytes) -> Stream:
    step, *memory = messages.decode(data)
    return Stream(int(step[0]), tuple(memory))


def dump_state(state: Stream) -> bytes:
    return messages.encode([np.array([state.step]), *state.memory])
