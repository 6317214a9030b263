"""Algorithm 1 as printed: silos also act on the raw data of the current batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import unpack
from fedbandit.plan import Plan
from fedbandit.simulate.engine import PRECISIONS, SHARDS, Floats, Ledger, Played, Progress, blocks
from fedbandit.simulate.federation import Federation, runs_noise
from fedbandit.simulate.kernels.layout import Local
from fedbandit.simulate.world import World


def play_eager(
    world: World, plans: Mapping[str, Plan], record: Sequence[int], progress: Progress, precision: str = "float32"
) -> dict[str, Played]:
    """Plans that act eagerly, together on the same users."""
    federations = {name: Federation(plan, runs_noise(world.seed, world.runs, name)) for name, plan in plans.items()}
    calendars = {name: set(plan.times) for name, plan in plans.items()}
    last = dict.fromkeys(plans, 0)
    state = Locals(len(plans), len(world.runs), world.silos, next(iter(plans.values())).dim)
    for index, federation in enumerate(federations.values()):
        state.reset(index, federation)
    ledger = Ledger(world, plans, record, min(SHARDS, world.silos))
    for first, end in blocks(calendars.values(), record):
        radius = np.array([[plan.radius(round_) for round_ in range(first + 1, end + 1)] for plan in plans.values()])
        tally = ledger.open(end - first)
        world.play_eager(first + 1, end - first, state.for_kernel(radius, precision), tally)
        ledger.close(end)
        for index, (name, federation) in enumerate(federations.items()):
            if end in calendars[name]:
                ledger.hand_over(index, federation, end - last[name], end)
                state.reset(index, federation)
                last[name] = end
        progress(end / record[-1])
    return {name: ledger.played(index, federation) for index, (name, federation) in enumerate(federations.items())}


class Locals:
    """Every silo's own inverse and bias, in Q plans and R runs."""

    def __init__(self, plans: int, runs: int, silos: int, dim: int) -> None:
        self.inverse = np.zeros((plans, runs, silos, dim, dim))
        self.bias = np.zeros((plans, runs, silos, dim))
        self.log_det_gain = np.zeros((plans, runs, silos))

    def reset(self, index: int, federation: Federation) -> None:
        """All silos of a plan start again from the synchronised statistics."""
        self.inverse[index] = inverse_of(federation.model)[:, None]
        self.bias[index] = unpack(federation.prefix, federation.plan.dim)[0][:, None]
        self.log_det_gain[index] = 0.0

    def for_kernel(self, radius: Floats, precision: str) -> Local:
        """Radii (plans, rounds) are the same in all runs."""
        plans, runs, _ = self.log_det_gain.shape
        everywhere = np.broadcast_to(radius[:, None, :], (plans, runs, radius.shape[1]))
        return Local(
            self.inverse, self.bias, self.log_det_gain, np.ascontiguousarray(everywhere, PRECISIONS[precision])
        )


def inverse_of(model: Model) -> Floats:
    """V^-1."""
    return np.asarray(model.root @ np.swapaxes(model.root, -1, -2))
