"""From how many silos on the paper's two shuffle protocols would pay, at their own constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from fedbandit.paper.presets import BATCH
from fedbandit.plan import Plan
from fedbandit.planner.catalogue import plan_for
from fedbandit.privacy.amplification import largest_epsilon, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.schedule import Every

MOST_SILOS = 10**14
COARSE_BITS = 8  # so much noise needs a coarser grid to fit into 64-bit sums


class Verdict(NamedTuple):
    """Whether a shuffle protocol pays: `silos` from which on it is less noisy than its rival, None for none up to
    MOST_SILOS."""

    protocol: str
    against: str
    silos: int | None
    reason: str


def verdicts(base: Plan) -> tuple[Verdict, ...]:
    """Both shuffle protocols against noise at the silo and against secure sums, for the budget of `base`."""
    return (*vector_sum(base), *amplified(base))


def vector_sum(base: Plan) -> tuple[Verdict, Verdict]:
    """Theorem SDP-vec: its noise in a sum over all silos does not depend on their number, that of a silo-level sum
    grows with its root, that of a secure sum stays, too. So one noise each settles every number of silos."""
    noise, silo = _noise("sdp-vector-sum", base), _noise("silo", base)
    secure = _noise("secure-sum", base)
    needed = math.ceil(base.silos * (noise / silo) ** 2)
    return (
        Verdict(
            "sdp-vector-sum", "silo", needed, f"noise {noise:,.0f} whatever the silos; silo {silo:.4g} at {base.silos}"
        ),
        Verdict(
            "sdp-vector-sum", "secure-sum", None, f"noise {noise:,.0f} against {secure:.4g}, both whatever the silos"
        ),
    )


def amplified(base: Plan) -> tuple[Verdict, Verdict]:
    """Theorem SDP: wherever it certifies anything, for any number of silos and any epsilon, against exact rivals."""
    privacy = base.privacy
    assert privacy is not None
    levels = mechanisms.encoder("tree", _paper_steps(base)).touches
    reach = _reach(privacy.delta, base.silos, base.rounds, levels)
    here = f"certifies epsilon <= {reach:.2g} with {base.silos} silos"
    found = list(_amplified_points(base, levels))
    return _amplified_verdict("silo", found, here), _amplified_verdict("secure-sum", found, here)


class AmplifiedPoint(NamedTuple):
    """One size and budget at which Theorem SDP certifies something, and the noises there."""

    silos: int
    epsilon: float
    amplified: float
    silo: float
    secure_sum: float


def _amplified_points(base: Plan, levels: int) -> Iterator[AmplifiedPoint]:
    """The largest epsilon it certifies and smaller ones, for every power of ten of silos.

    A silo's own noise does not depend on how many there are, so the rivals' noise is scaled from `base`.
    """
    privacy = base.privacy
    assert privacy is not None
    worst_row = float(mechanisms.encoder("tree", _paper_steps(base)).prefix_norms.max())
    for silos in (10**power for power in range(2, int(math.log10(MOST_SILOS)) + 1)):
        for share in (1.0, 0.1, 0.01):
            epsilon = share * _reach(privacy.delta, silos, base.rounds, levels)
            if epsilon <= 0:
                continue
            sigma = theorem_sdp(epsilon, privacy.delta, silos, base.rounds, levels).sigma
            other = base.changed(privacy=Privacy(epsilon, privacy.delta), bits=COARSE_BITS)
            growth = math.sqrt(silos / base.silos)
            yield AmplifiedPoint(
                silos,
                epsilon,
                math.sqrt(silos) * sigma * worst_row,
                growth * _noise("silo", other),
                _noise("secure-sum", other),
            )


def _amplified_verdict(against: str, found: list[AmplifiedPoint], here: str) -> Verdict:
    rival = "silo" if against == "silo" else "secure_sum"
    if not found:
        return Verdict("sdp-amplified", against, None, "certifies nothing at any number of silos")
    paying = [point for point in found if point.amplified < getattr(point, rival)]
    if paying:
        first = min(paying, key=lambda point: point.silos)
        return Verdict("sdp-amplified", against, first.silos, f"{here}; pays at epsilon {first.epsilon:.2g}, no larger")
    closest = min(found, key=lambda point: point.amplified / getattr(point, rival))
    times = closest.amplified / getattr(closest, rival)
    where = f"{closest.silos:.0e} silos, epsilon {closest.epsilon:.2g}"
    return Verdict("sdp-amplified", against, None, f"{here}; at best, with {where}, still {times:,.1f} times as noisy")


_reach = lru_cache(maxsize=64)(largest_epsilon)


def _noise(name: str, base: Plan) -> float:
    """Noise of the worst prefix sum over all silos; the paper's protocols on the paper's schedule."""
    return plan_for(name, base, _paper_schedule(base) if name.startswith("sdp") else None).noise_std


def _paper_schedule(base: Plan) -> Every:
    return Every(min(BATCH, base.rounds))


def _paper_steps(base: Plan) -> int:
    return len(_paper_schedule(base).times(base.rounds))
