"""Noise on a grid: when a discrete Gaussian, or a sum of them, keeps the promise of a continuous one.

Live noise is a discrete Gaussian X on a grid (probabilities proportional to exp(-x^2 / 2 s^2) at whole x, in grid
steps), and a sum over silos has a sum of these. The accounting is that of the continuous Gaussian. Two facts join them,
both from Poisson summation: for any real m, sum over whole k of exp(-(k - m)^2 / 2 r^2) is r sqrt(2 pi) times a number
in 1 +- eta(r), where eta(r) = 2 sum over n >= 1 of exp(-2 pi^2 r^2 n^2).

* One. Take z = c + N(0, s^2 - r^2) and draw from the discrete Gaussian of parameter r around z: whatever the whole
  number c, the result has probabilities within a factor (1 +- eta(r))^2 of the discrete Gaussian of parameter s at c.
  So what a silo releases is, but for that factor, post-processing of a Gaussian mechanism with r^2 less variance.
* Many. The sum of discrete Gaussians of parameters a and b has probabilities within (1 +- eta(c))^2 of the discrete
  Gaussian of parameter sqrt(a^2 + b^2), where c^2 = a^2 b^2 / (a^2 + b^2) (Kairouz, Liu & Steinke 2021, with this
  constant). Adding up h of parameter s step by step, c^2 is never below s^2 / 2.

With s at least `LEAST` and r^2 = `SPARE`, eta is below 1e-67. So: a silo's noise must be at least `LEAST` steps wide,
`SPARE` squared steps are added to its variance, and the factors that are left, one per number released and silo, add
`slack` to epsilon: far below anything that a float can show, and refused where it would not be. Without such a rule the
noise can vanish altogether: at a fifth of a step each, the noises of 1,000 silos are all zero (FACTS: 20 of 20 draws).
"""

from __future__ import annotations

import math

__all__ = ["LEAST", "SPARE", "eta", "slack"]

LEAST = 4.0  # grid steps: the narrowest noise of one silo
SPARE = LEAST**2 / 2  # squared grid steps of variance, on top of what the accounting asks for


def eta(width: float) -> float:
    """How far the sum over a grid of a Gaussian of this width, in steps, can be from its integral, relatively."""
    return 2 * sum(math.exp(-2 * math.pi**2 * width**2 * n**2) for n in range(1, 20))


def slack(numbers: int, silos: int) -> float:
    """What is added to epsilon by noise on a grid, over all numbers released, at the narrowest width allowed.

    Each factor (1 +- eta)^2 moves a log-likelihood ratio by at most 3 eta in either world; a sum over silos takes one
    per silo, and the comparison with the continuous Gaussian one more.
    """
    return 2 * numbers * (silos + 1) * 3 * eta(math.sqrt(SPARE))
