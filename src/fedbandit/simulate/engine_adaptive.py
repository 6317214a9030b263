"""Schedules that the data decide: Dubey & Pentland's determinant rule, and the rule on noisy covariances.

Rounds are played one by one, and each run synchronises at times of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import symmetric
from fedbandit.plan import Plan
from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import Floats, Stream
from fedbandit.schedule import Adaptive
from fedbandit.simulate.engine import PRECISIONS, Ledger, Played, Progress
from fedbandit.simulate.engine_eager import Locals
from fedbandit.simulate.federation import Federation, runs_noise
from fedbandit.simulate.kernels.layout import Beliefs
from fedbandit.simulate.world import World


def play_adaptive(
    world: World, name: str, plan: Plan, record: Sequence[int], progress: Progress, precision: str = "float32"
) -> Played:
    """One plan with an adaptive schedule; `world` holds a single run."""
    assert len(world.runs) == 1
    federation = Federation(plan, runs_noise(world.seed, world.runs, name))
    ledger = Ledger(world, {name: plan}, record, shards=world.silos)
    rule = _Rule(federation, world.silos)
    state = Locals(1, 1, world.silos, plan.dim)
    state.reset(0, federation)
    last = 0
    for round_ in range(1, record[-1] + 1):
        tally = ledger.open(1)
        radius = np.array([[plan.radius(round_)]])
        if plan.acting == "eager":
            world.play_eager(round_, 1, state.for_kernel(radius, precision), tally)
        else:
            model = federation.model
            beliefs = Beliefs(model.theta[None], model.root[None], model.radius[None].astype(PRECISIONS[precision]))
            world.play_lazy(round_, 1, beliefs, tally)
        ledger.close(round_)
        if rule.triggered(tally.sums[0, 0], round_ - last) or round_ == record[-1]:
            ledger.hand_over(0, federation, round_ - last, round_)
            state.reset(0, federation)
            rule.restart()
            last = round_
        if round_ % 100 == 0:
            progress(round_ / record[-1])
    return ledger.played(0, federation)


class _Rule:
    """Line 9 of the restated algorithm, or eq. (det-new) if the rule is private."""

    def __init__(self, federation: Federation, silos: int) -> None:
        schedule = federation.plan.schedule
        assert isinstance(schedule, Adaptive)
        self._federation = federation
        self._threshold = schedule.threshold
        self._private = schedule.private
        self._tree = mechanisms.encoder("tree", federation.plan.rounds)
        self._silos = silos
        self._scales = federation.plan.schedule_scales
        self.restart()

    def restart(self) -> None:
        """After a synchronisation: a new local covariance, and a new tree over the rounds to come."""
        shape = (self._silos, len(self._scales))
        self._encoder: Stream = self._tree.init(shape)
        self._decoder: Stream = self._tree.init_decoder(shape)
        self._before: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)

    def triggered(self, sums: NDArray[np.int64], waited: int) -> bool:
        """Whether some silo asks for a synchronisation; `sums` (silos, width) since the last one."""
        gain = self._gain(self._noisy(sums) if self._private else sums[:, self._federation.plan.dim :])
        return bool((gain > self._threshold / waited).any())

    def _noisy(self, sums: NDArray[np.int64]) -> Floats:
        """Every silo's covariance since the last synchronisation, from its tree (eq. det-new)."""
        now = sums[:, self._federation.plan.dim :]
        self._encoder, node = self._tree.step(self._encoder, now - self._before)
        self._before = now.copy()
        noisy = node + self._federation.noise.gaussian(self._scales, (1, self._silos))[0]
        self._decoder, prefix = self._tree.decode_step(self._decoder, noisy)
        return prefix

    def _gain(self, covariances: NDArray[np.int64] | Floats) -> Floats:
        """By how much each silo's own covariance has grown the determinant of the last synchronisation."""
        plan = self._federation.plan
        local = symmetric(np.asarray(covariances, dtype=np.float64) * 2.0**-plan.bits, plan.dim)
        return linucb.log_det_gain(local, self._federation.model.root)
