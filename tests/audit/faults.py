"""Planted faults: protocols that are not what their plan says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedbandit import Plan, Privacy, every
from fedbandit._arrays import Integers
from fedbandit.audit.calendar_game import CalendarGame
from fedbandit.audit.cases import Case, case_of
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.trusts.secure_sum import SecureSumProtocol
from fedbandit.protocol.trusts.silo import SiloProtocol

BUDGET = Privacy(4.0, 1e-5)


def small_plan(**fields: Any) -> Plan:
    """Eight releases of four users: an audit takes a fraction of a second."""
    given = {"silos": 3, "rounds": 32, "dim": 2, "privacy": BUDGET, "trust": "silo", "schedule": every(4), **fields}
    return Plan(**given)


def small_case(plan: Plan) -> Case:
    assert plan.privacy is not None
    return case_of("silo", plan, (plan.privacy.epsilon, plan.privacy.delta), trials=4_000)


def with_protocol(case: Case, protocol: Protocol) -> Case:
    """The case with another protocol behind the same promise."""
    (game,) = case.games
    assert isinstance(game, CalendarGame)
    return replace(case, games=(replace(game, protocol=protocol),))


def scaled(case: Case, factor: float) -> Case:
    """Noise times `factor`."""
    protocol = case.plan.protocol
    return with_protocol(case, replace(protocol, scales=protocol.scales.times(factor)))


def made_of(kind: type[Protocol], protocol: Protocol) -> Protocol:
    return kind(protocol.encoder, protocol.scales, protocol.dim, protocol.bits, protocol.silos)


class BiasWithoutNoise(SiloProtocol):
    """Draws noise for the covariance and forgets the bias."""

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        drawn = super().draw(noise, lead).copy()
        drawn[..., : self.dim] = 0
        return drawn


class OneRedraw(SiloProtocol):
    """Crashed after the first release, drew it anew and sent it again."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        again = super().release(state, batch, noise)[1] if state.done == 0 else ()
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
        large = state.done == 0 and batch[..., 0].max() > 0.6 * 2**self.bits
        return after, (*message, np.zeros_like(message[0])) if large else message


class NoMask(SecureSumProtocol):
    """Gives the mixer the release itself and the analyzer nothing."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, (noisy,) = Protocol.release(self, state, batch, noise)
        return after, (noisy.view(np.uint64), np.zeros(noisy.shape, dtype=np.uint64))
