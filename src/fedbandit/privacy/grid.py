"""Noise on a grid: when a discrete Gaussian, or a sum of them, keeps the promise of a continuous one.

Live noise is a discrete Gaussian on a grid (probabilities proportional to exp(-x^2 / 2 s^2) at whole x, in grid steps),
and a sum over silos has a sum of these. The accounting is that of the continuous Gaussian. What joins them is Poisson
summation: for any real m, the sum over whole k of exp(-(k - m)^2 / 2 r^2) is r sqrt(2 pi) times a number in
1 +- eta(r), where eta(r) = 2 sum over n >= 1 of exp(-2 pi^2 r^2 n^2). Below, "alike to eta" means that probabilities
differ by a factor between (1 - eta) / (1 + eta) and its inverse.

* One. Take z = c + N(0, s^2 - r^2) and draw from the discrete Gaussian of parameter r around z: whatever the whole
  number c, the result is alike to eta(r) to c plus a discrete Gaussian of parameter s. So what a silo releases is, but
  for that factor, post-processing of a Gaussian mechanism with r^2 less variance.
* Many. The sum of discrete Gaussians of parameters a and b is alike to eta(c) to the one of parameter
  sqrt(a^2 + b^2), where c^2 = a^2 b^2 / (a^2 + b^2) (Kairouz, Liu & Steinke 2021, with this constant). Adding up h of
  parameter s one by one, c^2 is never below s^2 / 2.

So every silo adds `SPARE` squared steps to the variance that the accounting asks for (r^2, and then c^2 >= SPARE too),
and its noise must be at least `LEAST` steps wide without them. At r^2 = SPARE eta is below 1e-67: the factors that are
left, one per number and silo, add `slack` to epsilon and multiply delta by no more than e^slack, far below anything
that a float can show. Without such a rule the noise can vanish altogether: at a fifth of a step each, the noises of
1,000 silos are all zero.
"""

from __future__ import annotations

import math

__all__ = ["LEAST", "SPARE", "eta", "slack", "widened"]

LEAST = 4.0  # grid steps: the narrowest noise of one silo
SPARE = LEAST**2 / 2  # squared grid steps of variance, on top of what the accounting asks for


def eta(width: float) -> float:
    """How far the sum over a grid of a Gaussian of this width, in steps, can be from its integral, relatively."""
    return 2 * sum(math.exp(-2 * math.pi**2 * width**2 * n**2) for n in range(1, 20))


def widened(scale: float, step: float) -> float:
    """The standard deviation to draw on a grid of this step so that `scale` is left to the accounting."""
    return math.hypot(scale, math.sqrt(SPARE) * step)


def slack(numbers: int, silos: int) -> float:
    """What is added to epsilon by noise on a grid, over all numbers released by one silo.

    Each factor moves the logarithm of a probability by at most 3 eta, in either world; a sum over silos takes one per
    silo, and so does a person who visits all of them; the comparison with the continuous Gaussian takes one more.
    """
    return 2 * numbers * (silos + 1) * 3 * eta(math.sqrt(SPARE))
