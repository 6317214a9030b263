"""Noise on a grid: when a discrete Gaussian, or a sum of them, keeps the promise of a continuous one.

Live noise is a discrete Gaussian on a grid: its probabilities are proportional to exp(-x^2 / 2 s^2) at whole x, in grid
steps. A sum over silos carries a sum of such noises. The accounting is that of the continuous Gaussian. Poisson
summation joins the two: for any real m, the sum over whole k of exp(-(k - m)^2 / 2 r^2) is r sqrt(2 pi) times a number
in 1 +- eta(r), where eta(r) = 2 sum over n >= 1 of exp(-2 pi^2 r^2 n^2). Below, two distributions are "alike to eta" if
their probabilities differ by a factor between (1 - eta) / (1 + eta) and its inverse.

* One discrete Gaussian. Draw z = c + N(0, s^2 - r^2), then draw from the discrete Gaussian of parameter r around z. For
  every whole number c, the result is alike to eta(r) to c plus a discrete Gaussian of parameter s. So, but for that
  factor, what a silo releases is post-processing of a Gaussian mechanism with r^2 less variance.
* A sum of them. The sum of discrete Gaussians of parameters a and b is alike to eta(c) to the discrete Gaussian of
  parameter sqrt(a^2 + b^2), where c^2 = a^2 b^2 / (a^2 + b^2) (Kairouz, Liu & Steinke 2021, with this constant). When h
  of them, of parameter s each, are added up one by one, c^2 is never below s^2 / 2.

So every silo adds `SPARE` squared steps to the variance that the accounting asks for (they are r^2, and then c^2 >=
SPARE too), and without them its noise must be at least `LEAST` steps wide. At r^2 = SPARE, eta is below 1e-67. The
factors that remain, one per number and silo, add `slack` to epsilon and multiply delta by no more than e^slack, far
below anything that a float can show. Without such a rule the noise can vanish altogether: at a fifth of a step each,
the noises of 1,000 silos are all zero.
"""

from __future__ import annotations

import math

__all__ = ["LEAST", "SPARE", "eta", "slack", "widened"]

LEAST = 4.0  # grid steps: the narrowest noise of one silo
SPARE = LEAST**2 / 2  # squared grid steps of variance, on top of what the accounting asks for


def eta(width: float) -> float:
    """How far, relatively, the sum over a grid of a Gaussian of this width, in steps, can be from its integral."""
    return 2 * sum(math.exp(-2 * math.pi**2 * width**2 * n**2) for n in range(1, 20))


def widened(scale: float, step: float) -> float:
    """The standard deviation to draw on a grid of this step so that `scale` is left for the accounting."""
    return math.hypot(scale, math.sqrt(SPARE) * step)


def slack(numbers: int, silos: int) -> float:
    """What noise on a grid adds to epsilon, over all numbers that one silo releases.

    Each factor moves the logarithm of a probability by at most 3 eta, in either world. A sum over silos takes one
    factor per silo, and so does a person who visits all of them; the comparison with the continuous Gaussian takes one
    more.
    """
    return 2 * numbers * (silos + 1) * 3 * eta(math.sqrt(SPARE))
