"""One sync of a whole federation: R at every silo, S, then A. The only place where the three are composed.

The simulator, the audit and the attacks run this; in a live federation the same three methods run in three processes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Stream

__all__ = ["State", "Transcript", "init", "receive", "send", "skip", "step"]


class State(NamedTuple):
    """The state of a federation: every silo's encoder, the analyzer's decoder, and what it last decoded."""

    silos: Stream
    analyzer: Stream
    prefix: Floats  # (..., width), natural units


class Transcript(NamedTuple):
    """What crossed between the parties in one sync."""

    sent: Message  # by the silos, (..., silos, width) each
    held: Message  # by the analyzer, once S has done its part


def init(protocol: Protocol, lead: tuple[int, ...] = (), silos: int | None = None) -> State:
    """The state before the first sync; `lead` are the axes before the silos'; `silos` of them play, all by default."""
    playing = protocol.silos if silos is None else silos
    return State(protocol.init((*lead, playing)), protocol.init_analyzer(lead), np.zeros((*lead, protocol.width)))


def step(protocol: Protocol, state: State, batch: Integers, noise: NoiseSource) -> State:
    """The next batches (..., silos, width) go through R, S and A."""
    state, transcript = send(protocol, state, batch, noise)
    return receive(protocol, state, transcript)


def send(protocol: Protocol, state: State, batch: Integers, noise: NoiseSource) -> tuple[State, Transcript]:
    """R and S: what the silos send, and what reaches the analyzer."""
    silos, sent = protocol.release(state.silos, batch, noise)
    return state._replace(silos=silos), Transcript(sent, protocol.passed_on(sent, noise))


def receive(protocol: Protocol, state: State, transcript: Transcript) -> State:
    """A: the prefix sum after this sync."""
    analyzer, prefix = protocol.decode(state.analyzer, transcript.held)
    return state._replace(analyzer=analyzer, prefix=prefix)


def skip(protocol: Protocol, state: State) -> State:
    """The state after a sync that no silo is in: the decoder moves on, and what it last decoded stays."""
    return state._replace(analyzer=protocol.skip(state.analyzer, state.prefix.shape[:-1]))
