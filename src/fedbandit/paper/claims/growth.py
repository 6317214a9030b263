"""How measured regret grows with T, d, epsilon, delta, M and B, compared with the exponents of Theorem LDP.

The paper's own presets play its synthetic instance at a few sizes. The cost of privacy is the regret of LDP-FedLinUCB
minus that of FedLinUCB on the same users. An exponent is the slope in a log-log plot, fitted run by run; its interval
is Student's t over runs. The theorem is an upper bound: a smaller exponent does not contradict it.

The theorem's own formula has logarithms besides, which move an exponent by up to 0.17 over the values of a sweep. So a
measured exponent is held against a range: from the claimed one to what the logarithms make of it, and where the theorem
has two terms, from one term's to the other's.

There are two regimes, and so two sizes to sweep from. At EARLY, the regulariser (chosen for the noise) still outweighs
most of the data; at LATE, the data outweigh it. MT/(d lambda) tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.paper.claims.claim import CONFIRMED, NARROWER_RANGE, OTHER_EXPONENT, Outcome, PaperClaim
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import tree_levels
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from fedbandit.simulator import tasks
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.runner import simulate

__all__ = [
    "EARLY",
    "LATE",
    "SWEEPS",
    "Exponent",
    "Regrets",
    "Size",
    "Sweep",
    "exponent_over_runs",
    "growth_claim",
    "growth_claims",
    "outcome",
]

ARMS, RUNS, QUICK_RUNS, SURE = 20, 4, 2, 0.95
SHOWN = 0.005  # the smallest part of an exponent that is printed


class Size(NamedTuple):
    """One federation on the synthetic instance."""

    silos: int
    rounds: int
    dim: int
    epsilon: float
    delta: float
    batch: int

    def plans(self) -> dict[str, Plan]:
        """LDP-FedLinUCB and FedLinUCB."""
        asked = Plan(self.silos, self.rounds, self.dim, privacy=Privacy(self.epsilon, self.delta), trust="silo")
        schedule = every(self.batch)
        return {"ldp": presets.ldp(asked, schedule=schedule), "free": presets.fed_lin_ucb(asked, schedule=schedule)}

    @property
    def logarithms(self) -> float:
        """Those of Lemma subG's privacy term under Theorem LDP: kappa (in sigma), log(MT) and log(K/alpha)."""
        plan = self.plans()["ldp"]
        kappa, last = tree_levels(plan.encoder.size), math.log(plan.encoder.size / plan.alpha)
        return float(math.sqrt(kappa * math.log(self.silos * self.rounds)) * last**0.25)

    @property
    def weight_of_data(self) -> float:
        """MT / (d lambda): the weight of the data in one direction at T, over the regulariser."""
        return self.silos * self.rounds / (self.dim * self.plans()["ldp"].regulariser)


EARLY = Size(silos=20, rounds=2_000, dim=4, epsilon=0.5, delta=0.01, batch=25)
LATE = Size(silos=40, rounds=8_000, dim=4, epsilon=2.0, delta=0.01, batch=50)


class Regrets(NamedTuple):
    """Group regret at T of every run, (runs,)."""

    ldp: Floats
    free: Floats

    @property
    def cost(self) -> Floats:
        """The cost of privacy: the difference on the same users."""
        return self.ldp - self.free


class Sweep(NamedTuple):
    """One field of a size, multiplied by `factors` or set to `values`; `claimed` are the exponents of the theorem's
    terms."""

    symbol: str
    field: str
    claimed: tuple[float, ...]
    of: Literal["cost", "free"]  # the property of `Regrets` that is fitted
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    values: tuple[float, ...] = ()
    scale: Callable[[float], float] = lambda value: value  # what is raised to the exponent
    bases: tuple[Size, ...] = (EARLY, LATE)

    @property
    def name(self) -> str:
        return f"{'cost' if self.of == 'cost' else 'learning'} by {self.symbol}"

    def sizes(self, base: Size) -> list[Size]:
        was = getattr(base, self.field)
        values = self.values or tuple(type(was)(was * factor) for factor in self.factors)
        return [Size(**{**base._asdict(), self.field: value}) for value in values]

    def scales(self, base: Size) -> list[float]:
        return [self.scale(getattr(size, self.field)) for size in self.sizes(base)]

    def logarithms(self, base: Size) -> float:
        """What the logarithms of the privacy term add to its exponent over these values; 0 for the other terms."""
        if self.of == "free":
            return 0.0
        return float(
            np.polyfit(np.log(self.scales(base)), [math.log(size.logarithms) for size in self.sizes(base)], 1)[0]
        )

    def allowed(self, base: Size) -> tuple[float, float]:
        """The lowest and the highest exponent that are as the theorem says."""
        ends = (*self.claimed, self.claimed[0] + self.logarithms(base))
        return min(ends), max(ends)


SWEEPS = (
    Sweep("T", "rounds", (1 / 2,), "cost", (0.5, 1.0, 2.0, 4.0)),
    Sweep("d", "dim", (3 / 4,), "cost", (1.0, 2.0, 4.0)),
    Sweep("ε", "epsilon", (-1 / 2,), "cost", (0.25, 0.5, 1.0, 2.0)),
    Sweep("log(1/δ)", "delta", (1 / 4,), "cost", values=(1e-2, 1e-4, 1e-8), scale=lambda delta: math.log(1 / delta)),
    Sweep("M", "silos", (3 / 4,), "cost", (0.25, 0.5, 1.0, 2.0)),
    Sweep("B", "batch", (0.0,), "cost", (0.5, 1.0, 2.0)),
    Sweep("T", "rounds", (0.0, 1 / 2), "free", (0.5, 1.0, 2.0, 4.0), bases=(LATE,)),
    Sweep("d", "dim", (1.0,), "free", (1.0, 2.0, 4.0), bases=(LATE,)),
    Sweep("M", "silos", (1.0, 1 / 2), "free", (0.25, 0.5, 1.0, 2.0), bases=(LATE,)),
    Sweep("B", "batch", (1.0, 0.0), "free", bases=(LATE,)),
)


class Exponent(NamedTuple):
    """A slope, the half width of its interval, and the slopes between neighbouring values."""

    slope: float
    half_width: float
    pieces: tuple[float, ...]

    def covers(self, lowest: float, highest: float | None = None) -> bool:
        """Whether the interval contains an exponent of this range, or this one exponent."""
        above = lowest if highest is None else highest
        return self.slope + self.half_width >= lowest and self.slope - self.half_width <= above

    def __str__(self) -> str:
        return f"{self.slope:.2f} ± {self.half_width:.2f}"


def exponent_over_runs(scales: Sequence[float], values: Sequence[Floats]) -> Exponent:
    """Fit a line to the logarithms by least squares, run by run; `values` has one array (runs,) per scale, all > 0."""
    x, y = np.log(scales), np.log(np.stack(values))  # (values,), (values, runs)
    slopes = np.polyfit(x, y, 1)[0]
    runs = len(slopes)
    half = stdtrit(runs - 1, (1 + SURE) / 2) * slopes.std(ddof=1) / math.sqrt(runs)
    pieces = np.diff(y.mean(axis=1)) / np.diff(x)
    return Exponent(float(slopes.mean()), float(half), tuple(map(float, pieces)))


def outcome(found: Sequence[Exponent], allowed: Sequence[tuple[float, float]]) -> Outcome:
    """Confirmed if every interval meets the range allowed there. Nothing measured here can refute an upper bound."""
    covered = [one.covers(*ends) for one, ends in zip(found, allowed, strict=True)]
    return CONFIRMED if all(covered) else NARROWER_RANGE if any(covered) else OTHER_EXPONENT


def growth_claims(quick: bool = False, progress: Progress = lambda share: None) -> list[PaperClaim]:
    """One claim per sweep; a size that several sweeps share is played once."""
    sizes = list(dict.fromkeys(size for sweep in SWEEPS for base in sweep.bases for size in sweep.sizes(base)))
    runs, total, before = QUICK_RUNS if quick else RUNS, sum(map(_work, sizes)), 0.0
    found: dict[Size, Regrets] = {}
    for size in sizes:
        found[size] = played(size, runs)
        before += _work(size)
        progress(before / total)
    return [growth_claim(sweep, found) for sweep in SWEEPS]


def growth_claim(sweep: Sweep, found: Mapping[Size, Regrets]) -> PaperClaim:
    """The claim of one sweep, from measured regrets."""
    slopes = [
        exponent_over_runs(sweep.scales(base), [getattr(found[size], sweep.of) for size in sweep.sizes(base)])
        for base in sweep.bases
    ]
    what = (
        "the privacy cost of Theorem LDP" if sweep.of == "cost" else "regret without privacy, dMB log T + d sqrt(MT),"
    )
    powers = " + ".join(f"{sweep.symbol}^{claimed:g}" for claimed in sweep.claimed)
    return PaperClaim(
        sweep.name,
        f"{what} grows as {powers}, up to logarithms",
        outcome(slopes, [sweep.allowed(base) for base in sweep.bases]),
        tuple(_line(sweep, base, slope) for base, slope in zip(sweep.bases, slopes, strict=True)),
    )


def _line(sweep: Sweep, base: Size, slope: Exponent) -> str:
    scales, regime = sweep.scales(base), "early" if base == EARLY else "late"
    where = "" if sweep.of == "free" else f"{regime}, MT/(dλ) about {base.weight_of_data:.2g}: "
    logs = sweep.logarithms(base)
    stated = f" (the theorem with its logarithms: {sweep.claimed[0] + logs:.2f})" if abs(logs) > SHOWN else ""
    return (
        f"{where}exponent {slope}{stated} over {sweep.symbol} = {scales[0]:,.4g} to {scales[-1]:,.6g}, from each value "
        f"to the next {', '.join(f'{piece:.2f}' for piece in slope.pieces)}"
    )


def played(size: Size, runs: int) -> Regrets:
    """Play both protocols on the same users."""
    plans = size.plans()
    result = simulate(tasks.synthetic(size.dim, ARMS), plans, runs, seed=0, progress=lambda share: None)
    return Regrets(*(size.rounds * result.final(name) for name in plans))


def _work(size: Size) -> float:
    """The time that a size takes, up to a constant."""
    return size.silos * size.rounds * (20 + size.dim) ** 2
