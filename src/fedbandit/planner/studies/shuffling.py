"""From how many silos on shuffling pays: the paper's two protocols, with the paper's constants and at their best.

`payoffs` answers for one plan. `thresholds` is the map: for every way of shuffling, every epsilon and every T, the
fewest silos at which it adds less noise to the worst prefix sum than silo-level LDP does without a mixer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.presets import fed_lin_ucb, plan_for
from fedbandit.privacy.accounting import gaussian_sigma, theorem_ldp_sigma, tree_levels
from fedbandit.privacy.amplification import largest_epsilon, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.clones import amplified_epsilon
from fedbandit.privacy.sensitivity import joint_shift
from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.vector_coding import TheoremCoding
from fedbandit.schedule import Every

__all__ = [
    "MAP_BATCH",
    "MAP_DELTA",
    "MAP_DIM",
    "MOST_ON_MAP",
    "WAYS",
    "Payoff",
    "Threshold",
    "amplified",
    "fewest_silos",
    "payoffs",
    "thresholds",
    "vector_sum",
]

MOST_SILOS = 10**14
COARSE_BITS = 8  # noise this large needs a coarser grid to fit into 64-bit sums


class Payoff(NamedTuple):
    """From how many silos on a shuffle protocol is less noisy than its rival; None if never, up to MOST_SILOS."""

    protocol: str
    against: str
    silos: int | None
    reason: str


class AmplifiedPoint(NamedTuple):
    """A number of silos and an epsilon that Theorem SDP certifies, with the noise of the protocol and its rivals."""

    silos: int
    epsilon: float
    noise: float
    rivals: Mapping[str, float]  # noise of each rival, by its preset's name

    def times(self, rival: str) -> float:
        """How many times noisier this is than the rival."""
        return self.noise / self.rivals[rival]


def payoffs(base: Plan) -> tuple[Payoff, ...]:
    """Both shuffle protocols against silo-level noise and against secure sums, for the budget of `base`."""
    return (*vector_sum(base), *amplified(base))


def vector_sum(base: Plan) -> tuple[Payoff, Payoff]:
    """Theorem SDP-vec against silo-level noise and against secure sums.

    The noise of SDP-vec in a sum over all silos does not depend on the number of silos, and neither does that of a
    secure sum. The noise of a silo-level sum grows with the square root of their number. So one figure for each decides
    for every number of silos.
    """
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
    """Theorem SDP, wherever it certifies anything, against rivals that are calibrated exactly."""
    reach = _reach(_asked(base).delta, base.silos, base.rounds, _paper_tree(base).touches)
    here = f"certifies epsilon <= {reach:.2g} with {base.silos} silos"
    found = list(_amplified_points(base))
    return _amplified_payoff("silo", found, here), _amplified_payoff("secure-sum", found, here)


def _amplified_points(base: Plan) -> Iterator[AmplifiedPoint]:
    """Theorem SDP at the largest epsilon that it certifies and at smaller ones, for every power of ten of silos.

    A silo's own noise does not depend on the number of silos, so the rivals' noise is scaled from `base`.
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
    """The noise of the worst prefix sum over all silos; the paper's protocols are on the paper's schedule."""
    return plan_for(name, base).noise_std


def _paper_tree(base: Plan) -> Encoder:
    """The tree of the paper's protocols, on their schedule."""
    return fed_lin_ucb(base).encoder


def _asked(base: Plan) -> Privacy:
    assert base.privacy is not None
    return base.privacy


# -- the map -----------------------------------------------------------------------------------------------------------

MAP_DELTA, MAP_BATCH, MAP_DIM, MAP_BITS, MOST_ON_MAP = 1e-6, 25, 10, 14, 10**9
CLOSER = 1.02  # the number of silos is found to within two per cent


class Threshold(NamedTuple):
    """From how many silos on a way of shuffling pays; None if not up to MOST_ON_MAP, or if its theorem ends before."""

    way: str
    rounds: int
    epsilon: float
    silos: float | None


def _lemma(silos: int, rounds: int, epsilon: float) -> bool:
    """Whether Theorem SDP, by its lemma, pays against Theorem LDP."""
    syncs = rounds // MAP_BATCH
    try:
        amplified = theorem_sdp(epsilon, MAP_DELTA, silos, rounds, _touches("tree", syncs)).sigma
    except ArgumentError:
        return False
    return amplified < theorem_ldp_sigma(epsilon, MAP_DELTA, tree_levels(syncs))


def _clones(mechanism: str) -> Callable[[int, int, float], bool]:
    """The lemma's proof done exactly (`clones`), over p-sums or batches, against exact silo-level LDP (`toeplitz`)."""

    def pays(silos: int, rounds: int, epsilon: float) -> bool:
        syncs, shift = rounds // MAP_BATCH, joint_shift("replace-one")
        rival = gaussian_sigma(epsilon, MAP_DELTA) * shift * _worst_prefix("toeplitz", syncs)
        sigma = rival / _row(mechanism, syncs)  # of each release; the worst prefix sum is then as noisy as the rival's
        points = MAP_BATCH * (1 if mechanism == "batches" else 1 << (syncs.bit_length() - 1))
        releases = _touches(mechanism, syncs)
        certified = amplified_epsilon(shift / sigma, points * shift / sigma, silos, releases, MAP_DELTA)
        return certified < epsilon

    return pays


def _vectors(silos: int, rounds: int, epsilon: float) -> bool:
    """P_vec with its theorem's constants and basic composition over streams and p-sums, against the same rival."""
    syncs = rounds // MAP_BATCH
    runs = 2 * _touches("tree", syncs)
    noise = TheoremCoding(epsilon / runs, MAP_DELTA / runs).node(0, silos * MAP_BATCH, MAP_DIM).std
    return noise * _row("tree", syncs) < _silos_noise(silos, syncs, epsilon)


def _exact_vectors(silos: int, rounds: int, epsilon: float) -> bool:
    """P_vec with the fewest bits that a plan's exact accounting allows if one silo, which may collude, is left out."""
    privacy, schedule = Privacy(epsilon, MAP_DELTA), Every(MAP_BATCH)
    plan = Plan(silos, rounds, MAP_DIM, privacy, "vector-sum", "tree", schedule, bits=MAP_BITS)
    return plan.noise_std < _silos_noise(silos, rounds // MAP_BATCH, epsilon)


def _silos_noise(silos: int, syncs: int, epsilon: float) -> float:
    """The noise of the worst prefix sum over all silos without a mixer: exact silo-level LDP with `toeplitz`."""
    sigma = gaussian_sigma(epsilon, MAP_DELTA) * joint_shift("replace-one")
    return math.sqrt(silos) * sigma * _worst_prefix("toeplitz", syncs)


WAYS: dict[str, Callable[[int, int, float], bool]] = {
    "Lemma amp, against Theorem LDP": _lemma,
    "clones over p-sums, against exact LDP": _clones("tree"),
    "clones over batches, against exact LDP": _clones("batches"),
    "vector sum, against exact LDP": _vectors,
    "exact vector sum, against exact LDP": _exact_vectors,
}


def thresholds(epsilons: Iterable[float], rounds: Iterable[int]) -> Iterator[Threshold]:
    """Every way at every epsilon and T."""
    asked = list(epsilons)
    for way in WAYS:
        for horizon in rounds:
            for epsilon in asked:
                yield Threshold(way, horizon, epsilon, fewest_silos(way, horizon, epsilon))


def fewest_silos(way: str, rounds: int, epsilon: float) -> float | None:
    """From how many silos on a way pays: the first power of ten at which it does, then bisection below it.

    The lemma no longer applies once T times the local epsilon exceeds 1, so it may stop paying further up.
    """
    pays = WAYS[way]
    powers = range(1, int(math.log10(MOST_ON_MAP)) + 1)
    first = next((power for power in powers if pays(10**power, rounds, epsilon)), None)
    if first is None:
        return None
    low, high = 10.0 ** (first - 1), 10.0**first
    while high > low * CLOSER:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if pays(round(middle), rounds, epsilon) else (middle, high)
    return high


@lru_cache(maxsize=64)
def _worst_prefix(mechanism: str, syncs: int) -> float:
    return mechanisms.encoder(mechanism, syncs).worst_prefix


@lru_cache(maxsize=64)
def _row(mechanism: str, syncs: int) -> float:
    """The noise of the worst prefix sum, as a multiple of one release's."""
    return float(np.max(mechanisms.encoder(mechanism, syncs).prefix_norms))


@lru_cache(maxsize=64)
def _touches(mechanism: str, syncs: int) -> int:
    return mechanisms.encoder(mechanism, syncs).touches
