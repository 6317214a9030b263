"""Planted faults: protocols that are not what their plan says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedbandit import Plan, Privacy, every
from fedbandit.audit.game import CalendarGame
from fedbandit.audit.subjects import Subject, subject_of
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Integers, Stream
from fedbandit.protocol.secure_sum import SecureSumProtocol
from fedbandit.protocol.silo import SiloProtocol

BUDGET = Privacy(4.0, 1e-5)


def small_plan(**fields: Any) -> Plan:
    """Eight releases of four users: an audit takes a fraction of a second."""
    given = {"silos": 3, "rounds": 32, "dim": 2, "privacy": BUDGET, "trust": "silo", "schedule": every(4), **fields}
    return Plan(**given)


def small_subject(plan: Plan) -> Subject:
    assert plan.privacy is not None
    return subject_of("silo", plan, (plan.privacy.epsilon, plan.privacy.delta), trials=4_000)


def with_protocol(subject: Subject, protocol: Protocol) -> Subject:
    """The subject with another protocol behind the same promise."""
    (game,) = subject.games
    assert isinstance(game, CalendarGame)
    return replace(subject, games=(replace(game, protocol=protocol),))


def scaled(subject: Subject, factor: float) -> Subject:
    """Noise times `factor`."""
    protocol = subject.plan.protocol
    return with_protocol(subject, replace(protocol, scales=tuple(factor * s for s in protocol.scales)))


def made_of(kind: type[Protocol], protocol: Protocol) -> Protocol:
    return kind(protocol.encoder, protocol.scales, protocol.bits, protocol.silos)


class BiasWithoutNoise(SiloProtocol):
    """Draws noise for the covariance and forgets the bias."""

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        drawn = super().draw(noise, lead).copy()
        drawn[..., :2] = 0
        return drawn


class OneRedraw(SiloProtocol):
    """Crashed after the first release, drew it anew and sent it again."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        again = super().release(state, batch, noise)[1] if state.step == 0 else ()
        return after, (*message, *again)


class NodesTwice(SiloProtocol):
    """Releases every node of the tree a second time, with new noise."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        return after, (*message, *super().release(state, batch, noise)[1])


class SizeByData(SiloProtocol):
    """Sends one array more where a batch has a large first entry."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        large = state.step == 0 and batch[..., 0].max() > 0.6 * 2**self.bits
        return after, (*message, np.zeros_like(message[0])) if large else message


class NoMask(SecureSumProtocol):
    """Gives the mixer the release itself and the analyzer nothing."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, (noisy,) = SiloProtocol.release(self, state, batch, noise)  # type: ignore[arg-type]
        return after, (noisy.view(np.uint64), np.zeros(noisy.shape, dtype=np.uint64))
