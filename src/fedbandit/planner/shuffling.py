"""From how many silos on the paper's two shuffle protocols would pay, at their own constants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from fedbandit.plan import Plan
from fedbandit.presets import fed_lin_ucb, plan_for
from fedbandit.privacy.amplification import largest_epsilon, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.encoder import Encoder

__all__ = ["Payoff", "amplified", "payoffs", "vector_sum"]

MOST_SILOS = 10**14
COARSE_BITS = 8  # so much noise needs a coarser grid to fit into 64-bit sums


class Payoff(NamedTuple):
    """Whether a shuffle protocol pays: from `silos` silos on it is less noisy than its rival; None: never, up to
    MOST_SILOS."""

    protocol: str
    against: str
    silos: int | None
    reason: str


class AmplifiedPoint(NamedTuple):
    """A number of silos and an epsilon that Theorem SDP certifies, with the noise there."""

    silos: int
    epsilon: float
    noise: float
    rivals: Mapping[str, float]  # noise of each rival, by its preset's name

    def times(self, rival: str) -> float:
        """How many times as noisy it is as the rival."""
        return self.noise / self.rivals[rival]


def payoffs(base: Plan) -> tuple[Payoff, ...]:
    """Both shuffle protocols against noise at the silo and against secure sums, for the budget of `base`."""
    return (*vector_sum(base), *amplified(base))


def vector_sum(base: Plan) -> tuple[Payoff, Payoff]:
    """Theorem SDP-vec: its noise in a sum over all silos does not depend on how many silos there are. That of a
    silo-level sum grows with their square root; that of a secure sum does not depend on it either. So one noise of each
    settles every number of silos."""
    noise, silo, secure = (_noise(name, base) for name in ("sdp-vector-sum", "silo", "secure-sum"))
    needed = math.ceil(base.silos * (noise / silo) ** 2)
    return (
        Payoff(
            "sdp-vector-sum", "silo", needed, f"noise {noise:,.0f} whatever the silos; silo {silo:.4g} at {base.silos}"
        ),
        Payoff(
            "sdp-vector-sum",
            "secure-sum",
            None,
            f"noise {noise:,.0f} whatever the silos; secure-sum {secure:.4g} at {base.silos}",
        ),
    )


def amplified(base: Plan) -> tuple[Payoff, Payoff]:
    """Theorem SDP, wherever it certifies anything, for any number of silos and any epsilon, against exact rivals."""
    reach = _reach(_asked(base).delta, base.silos, base.rounds, _paper_tree(base).touches)
    here = f"certifies epsilon <= {reach:.2g} with {base.silos} silos"
    found = list(_amplified_points(base))
    return _amplified_payoff("silo", found, here), _amplified_payoff("secure-sum", found, here)


def _amplified_points(base: Plan) -> Iterator[AmplifiedPoint]:
    """The largest epsilon that it certifies and smaller ones, for every power of ten of silos.

    A silo's own noise does not depend on how many there are, so the rivals' noise is scaled from `base`.
    """
    delta, tree = _asked(base).delta, _paper_tree(base)
    worst_row = float(tree.prefix_norms.max())
    for silos in (10**power for power in range(2, int(math.log10(MOST_SILOS)) + 1)):
        for share in (1.0, 0.1, 0.01):
            epsilon = share * _reach(delta, silos, base.rounds, tree.touches)
            if epsilon <= 0:
                continue
            sigma = theorem_sdp(epsilon, delta, silos, base.rounds, tree.touches).sigma
            other = base.changed(privacy=Privacy(epsilon, delta), bits=COARSE_BITS)
            growth = math.sqrt(silos / base.silos)
            rivals = {"silo": growth * _noise("silo", other), "secure-sum": _noise("secure-sum", other)}
            yield AmplifiedPoint(silos, epsilon, math.sqrt(silos) * sigma * worst_row, rivals)


def _amplified_payoff(against: str, found: list[AmplifiedPoint], here: str) -> Payoff:
    if not found:
        return Payoff("sdp-amplified", against, None, "certifies nothing at any number of silos")
    paying = [point for point in found if point.times(against) < 1]
    if paying:
        first = min(paying, key=lambda point: point.silos)
        return Payoff("sdp-amplified", against, first.silos, f"{here}; pays at epsilon {first.epsilon:.2g}, no larger")
    closest = min(found, key=lambda point: point.times(against))
    where = f"{closest.silos:.0e} silos, epsilon {closest.epsilon:.2g}"
    reason = f"{here}; at best, with {where}, still {closest.times(against):,.1f} times as noisy"
    return Payoff("sdp-amplified", against, None, reason)


_reach = lru_cache(maxsize=64)(largest_epsilon)


def _noise(name: str, base: Plan) -> float:
    """Noise of the worst prefix sum over all silos; the paper's protocols are on the paper's schedule."""
    return plan_for(name, base).noise_std


def _paper_tree(base: Plan) -> Encoder:
    """The tree of the paper's protocols, on their schedule."""
    return fed_lin_ucb(base).encoder


def _asked(base: Plan) -> Privacy:
    assert base.privacy is not None
    return base.privacy
