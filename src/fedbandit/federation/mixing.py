"""S and A on the messages of one round: the library's own, on bytes. Nothing here touches a network or a disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit.statistics import width
from fedbandit.federation import messages
from fedbandit.federation.learning import Outcome, checked_cohort
from fedbandit.federation.noise import ExactNoise
from fedbandit.federation.states import RoundEvent
from fedbandit.plan import Plan
from fedbandit.protocol.base import Message
from fedbandit.protocol.encoder import Stream


class Mixed(NamedTuple):
    """What the mixer passes on for a round: who is in it, and a total or shuffled ciphertexts."""

    cohort: NDArray[np.int64]  # (silos,), 0 or 1
    total: Message  # empty for trust shuffle and for a skipped round
    ciphertexts: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        return messages.pack([messages.encode([self.cohort]), messages.encode(self.total), *self.ciphertexts])

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Mixed:
        """What a mixer sent, if it has the form that the plan gives it."""
        parts = messages.unpack(data)
        if len(parts) < 2:
            raise messages.MessageError(f"a round must have a cohort and a total, got {len(parts)} parts")
        cohort = checked_cohort(messages.decode(parts[0], [(plan.silos,)])[0])
        mixed = cls(cohort, messages.decode(parts[1]), tuple(parts[2:]))
        mixed._check(plan)
        return mixed

    def _check(self, plan: Plan) -> None:
        present = int(self.cohort.sum())
        shuffled = plan.trust == "shuffle"
        if len(self.ciphertexts) != (present if shuffled else 0):
            raise messages.MessageError(f"a round of {present} silos cannot have {len(self.ciphertexts)} ciphertexts")
        shapes = [(1, width(plan.dim))] if present and not shuffled else []
        wanted = np.uint64 if plan.trust == "secure-sum" else np.int64
        if [a.shape for a in self.total] != shapes or any(a.dtype != wanted for a in self.total):
            raise messages.MessageError(f"total must have shapes {shapes} of {np.dtype(wanted)}")


def closing(present: Collection[str], silos: Collection[str], cohort: int, late: bool) -> RoundEvent | None:
    """Whether a round closes now, and how: with everybody, or at the deadline with enough, or not at all."""
    if len(present) == len(silos):
        return RoundEvent.COMPLETE
    if not late:
        return None
    return RoundEvent.DEADLINE_ENOUGH if len(present) >= cohort else RoundEvent.DEADLINE_SHORT


def membership(present: Collection[str], silos: Sequence[str]) -> NDArray[np.int64]:
    """A cohort as 0s and 1s in the order of the silos' names."""
    return np.array([int(name in present) for name in silos], dtype=np.int64)


def mix(plan: Plan, inbox: Mapping[str, bytes], silos: Sequence[str], noise: ExactNoise) -> Mixed:
    """S on one round's messages: adds what it can read, permutes what it cannot."""
    cohort = membership(inbox, silos)
    protocol = plan.protocol
    if plan.trust == "shuffle":
        sealed = list(inbox.values())
        (order,) = protocol.mix((np.arange(len(sealed))[:, None],), noise)
        return Mixed(cohort, (), tuple(sealed[i] for i in order[:, 0]))
    own = stacked(plan, inbox.values())
    if plan.trust == "secure-sum":
        nothing = np.zeros((0, width(plan.dim)), dtype=np.uint64)  # the analyzer's shares are sealed to S
        total, _ = protocol.mix((own[0], nothing), noise)
        return Mixed(cohort, (total,))
    return Mixed(cohort, protocol.mix(own, noise))


def stacked(plan: Plan, payloads: Collection[bytes]) -> Message:
    """Messages of several silos, (silos, width) each."""
    parts = [messages.decode(payload) for payload in payloads]
    return tuple(np.stack(arrays) for arrays in zip(*parts, strict=True))


def check_release(plan: Plan, payload: bytes) -> None:
    """Refuse a silo's message of another shape or type than the plan's, before it is counted in."""
    (array,) = messages.decode(payload, [(width(plan.dim),)])
    wanted = np.uint64 if plan.trust == "secure-sum" else np.int64
    if array.dtype != wanted:
        raise messages.MessageError(f"message must hold {np.dtype(wanted)}, got {array.dtype}")


def decode(plan: Plan, state: Stream, mixed: Message, cohort: NDArray[np.int64]) -> tuple[Stream, Outcome]:
    """A: the prefix sum after this round."""
    state, prefix = plan.protocol.decode(state, mixed)
    return state, Outcome(np.asarray(prefix, dtype=np.float64), cohort)


def skip(plan: Plan, state: Stream, last: Outcome | None) -> tuple[Stream, Outcome]:
    """A for a round that nobody is in: the decoder moves on by an empty release, the model stays."""
    if plan.decode_at == "silo":
        state = Stream(state.step + 1, ())
    else:
        state, _ = plan.encoder.decode_step(state, np.zeros(width(plan.dim)))
    prefix = np.zeros(width(plan.dim)) if last is None else last.prefix
    return state, Outcome(prefix, np.zeros(plan.silos, dtype=np.int64))
