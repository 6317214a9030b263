"""Exact binomial draws from the operating system's randomness, for any number of trials.

Bin(n, 1/2) with a large n is drawn by rejection (Bringmann et al., "Internal DLA: efficient simulation of a physical
growth model", 2014). A proposal is uniform in a block of about sqrt(2n) values, and the block lies a geometric number
of blocks away from the middle. The probability of accepting it is computed to 20 digits and compared with a uniform
random number. In the rare case that the two agree so far, more digits are computed. Bin(n, 1/4) is
Bin(Bin(n, 1/2), 1/2), and so on.
"""

from __future__ import annotations

import secrets
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import comb, isqrt

__all__ = ["bernoulli", "binomial"]

SMALL = 2**16  # below this many trials, random bits are counted
ENVELOPE = Fraction(6, 5)  # p(i) * block * 2^distance is at most this everywhere, for n >= SMALL


def binomial(trials: int, probability: float) -> int:
    """One draw of Bin(trials, probability), exact for the float's own value."""
    halvings = _halvings(probability)
    if halvings is None:
        return sum(bernoulli(probability) for _ in range(trials))
    for _ in range(halvings):
        trials = _fair(trials)
    return trials


def bernoulli(probability: float) -> int:
    """1 with exactly this probability, else 0: a float is a fraction over a power of two."""
    numerator, denominator = probability.as_integer_ratio()
    return int(secrets.randbelow(denominator) < numerator)


def _halvings(probability: float) -> int | None:
    """k if the probability is 2^-k, else None."""
    numerator, denominator = probability.as_integer_ratio()
    return denominator.bit_length() - 1 if numerator == 1 else None


def _fair(trials: int) -> int:
    """One draw of Bin(trials, 1/2)."""
    if trials < SMALL:
        return secrets.randbits(trials).bit_count() if trials else 0
    odd = trials % 2
    return trials // 2 + _centred(trials - odd) + (secrets.randbits(1) if odd else 0)


def _centred(trials: int) -> int:
    """One draw of Bin(trials, 1/2) - trials / 2, for an even number of trials."""
    block, half = isqrt(2 * trials) + 1, trials // 2
    while True:
        distance = _geometric()
        start = distance * block if secrets.randbits(1) else -(distance + 1) * block
        value = start + secrets.randbelow(block)
        if abs(value) <= half and _accepts(trials, value, block, distance):
            return value


def _geometric() -> int:
    """The number of failures before the first success of a fair coin."""
    count = 0
    while secrets.randbits(1):
        count += 1
    return count


def _accepts(trials: int, value: int, block: int, distance: int) -> bool:
    """True with probability p(value) * block * 2^distance / ENVELOPE, where p(value) is the probability of `value`."""
    bits, uniform, digits = 128, secrets.randbits(128), 20
    while True:  # the chance is at most 1, so its absolute error is below the relative error of p, 10^-digits
        chance = _probability(trials, value, digits) * block * 2**distance / ENVELOPE
        error = Fraction(1, 10 ** (digits - 5))
        if Fraction(uniform + 1, 2**bits) < chance - error:
            return True
        if Fraction(uniform, 2**bits) > chance + error:
            return False
        uniform, bits, digits = (uniform << 128) | secrets.randbits(128), bits + 128, digits + 40


def _probability(trials: int, value: int, digits: int) -> Fraction:
    """P(Bin(trials, 1/2) = trials / 2 + value) with a relative error below 10^-digits, because its logarithm is off by
    less than that."""
    half = trials // 2
    with localcontext() as context:
        context.prec = digits + len(str(trials)) + 12
        log = (
            _log_factorial(trials, digits)
            - _log_factorial(half + value, digits)
            - _log_factorial(half - value, digits)
            - trials * _log_two(context.prec)
        )
        return Fraction(log.exp())


@lru_cache(maxsize=1024)
def _log_factorial(number: int, digits: int) -> Decimal:
    """ln(number!) with an absolute error below 10^-(digits + 3): Stirling's series at a number that is large enough."""
    *series, left_out = _stirling(digits // 5 + 5)  # the error is below the first term left out
    with localcontext() as context:
        context.prec = digits + len(str(number)) + 15
        raised = number + 1
        while abs(left_out) * 10 ** (digits + 3) > raised ** (2 * len(series) + 1):
            raised *= 2
        product = Decimal(1)
        for shift in range(number + 1, raised):
            product *= shift
        z = Decimal(raised)
        log = (z - Decimal("0.5")) * z.ln() - z + _half_log_two_pi(context.prec)
        for k, term in enumerate(series):
            log += Decimal(term.numerator) / Decimal(term.denominator) / z ** (2 * k + 1)
        return log - product.ln()


@lru_cache(maxsize=8)
def _stirling(terms: int) -> tuple[Fraction, ...]:
    """The coefficients B_2k / (2k (2k - 1)) of Stirling's series, from k = 1."""
    numbers = [Fraction(1)]  # B_0, B_1, ...
    for m in range(1, 2 * terms + 1):
        known = sum((comb(m + 1, j) * number for j, number in enumerate(numbers)), start=Fraction(0))
        numbers.append(-known / (m + 1))
    return tuple(numbers[2 * k] / (2 * k * (2 * k - 1)) for k in range(1, terms + 1))


@lru_cache(maxsize=64)
def _log_two(digits: int) -> Decimal:
    with localcontext(prec=digits):
        return Decimal(2).ln()


@lru_cache(maxsize=64)
def _half_log_two_pi(digits: int) -> Decimal:
    with localcontext(prec=digits):
        return (2 * _pi(digits)).ln() / 2


@lru_cache(maxsize=8)
def _pi(digits: int) -> Decimal:
    """pi by Machin's formula."""
    unit = 10 ** (digits + 10)
    value = 4 * (4 * _arctan_inverse(5, unit) - _arctan_inverse(239, unit))
    return Decimal(value) / Decimal(unit)


def _arctan_inverse(x: int, unit: int) -> int:
    total = term = unit // x
    divisor, sign = 1, 1
    while term:
        term //= x * x
        divisor += 2
        sign = -sign
        total += sign * (term // divisor)
    return total
