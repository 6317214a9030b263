"""Dubey & Pentland's determinant rule, on raw sums or on noisy ones: a pure `init` and `step`, one step per round.

A silo asks for a sync when the log-determinant of what it has seen since the last one has grown by threshold / rounds
waited (line 9 of the restated algorithm). The private variant looks at a noisy local covariance, which comes from a
tree over the rounds since the last sync (eq. det-new).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Flags, Floats, Integers, Numbers
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import Scales, symmetric
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.encoder import Encoder, Stream

__all__ = ["DeterminantRule", "RuleState"]


class RuleState(NamedTuple):
    """What a silo's rule has learnt since the last sync."""

    waited: int  # rounds
    encoder: Stream
    decoder: Stream
    node: Floats  # (..., entries): the noisy tree node that the last round completed, or that round without noise
    seen: Floats  # (..., entries): the covariance that the rule looks at


@dataclass(frozen=True)
class DeterminantRule:
    """The rule of one plan. Covariances are packed matrix entries in units of the statistics' grid, 2^-bits.

    Formal guarantee, with noise: all nodes that a silo's rule ever looks at are together
    (column_norm * shift / sigma)-GDP for each of its users. Here sigma is the noise on the diagonal (sigma / sqrt 2 off
    it), column_norm is that of the tree, and shift is the largest move of one round's covariance (Frobenius norm) by
    one user. A new tree begins after each sync, so each round is in one tree only. Without noise there is no guarantee:
    which silo asks for a sync tells something about single users.
    """

    dim: int
    bits: int
    threshold: float
    scales: Scales  # of the noise on a node of the tree, natural units; zero: the rule looks at raw sums
    tree: Encoder  # over the rounds of the whole horizon
    patient: bool = True  # the longer a silo has waited, the less growth is enough; False: always the whole threshold

    @cached_property
    def node_scales(self) -> Floats:
        """The standard deviation of the noise in each packed matrix entry, in grid units."""
        return np.asarray(self.scales.packed(self.dim)[self.dim :] * 2.0**self.bits)

    @cached_property
    def private(self) -> bool:
        """Whether the rule looks at noisy sums."""
        return bool(self.node_scales.any())

    def init(self, lead: tuple[int, ...]) -> RuleState:
        """The state just after a sync."""
        shape = (*lead, len(self.node_scales))
        return RuleState(0, self.tree.init(shape), self.tree.init_decoder(shape), np.zeros(shape), np.zeros(shape))

    def step(self, state: RuleState, covariance: Integers, root: Floats, noise: NoiseSource) -> tuple[RuleState, Flags]:
        """One more round, which added `covariance` (..., entries): the rule's state, and which silos ask for a sync.

        `root` (..., dim, dim) belongs to the model of the last sync: V^-1 = root root^T.
        """
        state = self._after_round(state, covariance, noise)
        return state, self.asks(state.seen, root, state.waited)

    def asks(self, seen: Numbers, root: Floats, waited: int) -> Flags:
        """Which silos ask for a sync after seeing this covariance (..., entries) since the last one."""
        matrices = symmetric(seen * 2.0**-self.bits, self.dim)
        return np.asarray(linucb.log_det_gain(matrices, root) > self.limit(waited))

    def limit(self, waited: int | Integers) -> float | Floats:
        """The growth beyond which a silo that has waited this many rounds asks for a sync."""
        return self.threshold / (waited if self.patient else np.ones_like(waited))

    def _after_round(self, state: RuleState, covariance: Integers, noise: NoiseSource) -> RuleState:
        waited = state.waited + 1
        if not self.private:
            node = covariance.astype(np.float64)
            return state._replace(waited=waited, node=node, seen=state.seen + node)
        encoder, exact = self.tree.step(state.encoder, covariance)
        node = (exact + noise.gaussian(self.node_scales, covariance.shape[:-1])).astype(np.float64)
        decoder, seen = self.tree.decode_step(state.decoder, node)
        return RuleState(waited, encoder, decoder, node, seen)
