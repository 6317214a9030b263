"""Random numbers of simulated users, by counter: any user's numbers can be computed alone, in any order, anywhere.

A user is (seed, run, silo, round). For each purpose a user has one 64-bit key, a chain of SplitMix64 finalisers.
Numbers are hashes of (key, counter), so there is no state, nothing to seed and nothing to skip. Every operation is on
integers, or on IEEE float32 numbers that are rounded in a fixed order. So contexts are the same to the last bit on
every machine and thread.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from fedbandit._arrays import Singles
from fedbandit._jit import njit
from fedbandit._splitmix import GOLDEN, mixed
from fedbandit.simulator.instructions import (
    add,
    bits_of,
    both,
    either,
    exclusive_or,
    float_of_bits,
    fused,
    multiply,
    shift_left,
    shift_right,
    shift_right_signed,
    signed_to_float,
    subtract,
)

__all__ = [
    "CHOICE",
    "CONTEXT",
    "DELAY",
    "REWARD",
    "VISIT",
    "fill_normals",
    "integer_below",
    "normal",
    "uniform",
    "user_key",
]

CONTEXT: Final = 0  # purpose: the actions that a user brings
REWARD: Final = 1  # purpose: the noise of the user's reward, the same whichever action is chosen
VISIT: Final = 2  # purpose: how often the user has come before, and whether they agree to be counted
CHOICE: Final = 3  # purpose: the draw of an action by a policy that is not certain, the same for every protocol
DELAY: Final = 4  # purpose: when the user's reward comes

_word = np.uint32
_key = np.uint64
_HALF_TURN: Final = np.float32(2.0**-31)  # a signed word to [-1, 1)
_ONE: Final = np.float32(1.0)
_MINUS_TWO_LN_2: Final = np.float32(-2.0 * math.log(2.0))

# Minimax polynomials, lowest power first: -2 ln(1 + f) / f for sqrt(1/2) <= 1 + f <= sqrt 2 (error 4e-7), and the sine
# over t and the cosine of half a turn times t as functions of t^2 for |t| <= 1 (errors 7e-9 and 5e-8).
# fmt: off
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7 = (np.float32(c) for c in (
    -1.99999984, 1.00000689, -0.66671216, 0.49943120, -0.39768472, 0.34424855, -0.32676284, 0.20757413))
_S0, _S1, _S2, _S3, _S4 = (np.float32(c) for c in (
    1.57079632, -0.645963761, 7.96899269e-2, -4.67415750e-3, 1.51678532e-4))
_C0, _C1, _C2, _C3, _C4 = (np.float32(c) for c in (
    0.999999953, -1.23369821, 0.253650745, -2.08106275e-2, 8.58190618e-4))
# fmt: on
_ROOT_HALF_BITS: Final = 0x3F3504F3  # of float32 sqrt(1/2), the smallest 1 + f
_EXPONENT_BITS: Final = 23  # where the exponent of a float32 begins


@njit(cache=True)
def user_key(seed: np.uint64, run: int, silo: int, round_: int, purpose: int) -> np.uint64:
    """The 64-bit key of one user's numbers for one purpose."""
    key = mixed(_key(seed) + GOLDEN)
    key = mixed((key ^ _key(run)) + GOLDEN)
    key = mixed((key ^ _key(silo)) + GOLDEN)
    key = mixed((key ^ _key(round_)) + GOLDEN)
    return mixed((key ^ _key(purpose)) + GOLDEN)


@njit(cache=True)
def uniform(key: np.uint64) -> float:
    """One uniform number in [0, 1), a multiple of 2^-53."""
    return np.float64(mixed(_key(key) + GOLDEN) >> _key(11)) * 2.0**-53


@njit(cache=True)
def normal(key: np.uint64) -> float:
    """One standard normal number in float64 (Box-Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(key)))
    return radius * math.cos(2.0 * math.pi * uniform(_key(key) + GOLDEN))


@njit(cache=True)
def integer_below(key: np.uint64, bound: int) -> np.int64:
    """One integer in 0 .. bound - 1 for 1 <= bound < 2^32, uniform up to a bias of bound / 2^64."""
    word = mixed(_key(key) + GOLDEN)
    high = (word >> _key(32)) * _key(bound)
    low = ((word & _key(0xFFFFFFFF)) * _key(bound)) >> _key(32)
    return np.int64((high + low) >> _key(32))


@njit(cache=True)
def _hashed(counter: np.uint32, low: np.uint32, high: np.uint32) -> Any:
    """A random word for a counter under the two halves of a key: the triple32 hash, keyed at its start and inside."""
    word = add(counter, low)
    word = multiply(exclusive_or(word, shift_right(word, _word(17))), _word(0xED5AD4BB))
    word = exclusive_or(word, high)
    word = multiply(exclusive_or(word, shift_right(word, _word(11))), _word(0xAC4C1B51))
    word = multiply(exclusive_or(word, shift_right(word, _word(15))), _word(0x31848BAB))
    return exclusive_or(word, shift_right(word, _word(14)))


@njit(cache=True)
def _square_radius(word: np.uint32) -> Any:
    """-2 ln u for u = k / 2^31, where k is the upper 31 bits of the word with the last one set, so never 0.

    u = 2^exponent (1 + f) is read off the bits of the float32 k. The logarithm of 1 + f is a polynomial, summed in
    pairs (Estrin), because a shorter chain of dependent operations keeps the processor busier.
    """
    share = bits_of(signed_to_float(either(shift_right(word, _word(1)), _word(1))))
    steps = subtract(share, _word(_ROOT_HALF_BITS + (31 << _EXPONENT_BITS)))
    exponent = shift_right_signed(steps, _word(_EXPONENT_BITS))
    mantissa = add(both(steps, _word((1 << _EXPONENT_BITS) - 1)), _word(_ROOT_HALF_BITS))
    f = float_of_bits(mantissa) - _ONE
    f2 = f * f
    lower = fused(fused(_L3, f, _L2), f2, fused(_L1, f, _L0))
    upper = fused(fused(_L7, f, _L6), f2, fused(_L5, f, _L4))
    return fused(signed_to_float(exponent), _MINUS_TWO_LN_2, fused(upper, f2 * f2, lower) * f)


@njit(cache=True)
def _turned(square: np.float32, word: np.uint32) -> tuple[Any, Any]:
    """The point at a random angle on the circle of squared radius ``square``.

    The word as a signed number gives an angle within half a turn; its lowest bit chooses between the two halves.
    """
    t = signed_to_float(word) * _HALF_TURN
    s = t * t
    sine = fused(fused(fused(fused(_S4, s, _S3), s, _S2), s, _S1), s, _S0) * t
    cosine = fused(fused(fused(fused(_C4, s, _C3), s, _C2), s, _C1), s, _C0)
    radius = float_of_bits(exclusive_or(bits_of(np.sqrt(square)), shift_left(word, _word(31))))
    return radius * cosine, radius * sine


@njit(cache=True)
def fill_normals(key: np.uint64, out: Singles) -> None:
    """Fill ``out`` (1-D, contiguous) with independent standard normals; largest possible value 6.56.

    This is Box-Muller on words i and i + size // 2, with one loop per step: three short loops overlap their iterations
    better than one long one. Between the loops, ``out`` holds the bits of words, then squared radii.
    """
    halves = mixed(_key(key) + GOLDEN)  # mixed, so that neighbouring keys do not count through the same words
    low, high = _word(halves), _word(halves >> _key(32))
    pairs = out.size // 2
    first, second = out[:pairs], out[pairs:]
    for i in range(out.size):
        out[i] = float_of_bits(_hashed(_word(i), low, high))
    for i in range(pairs):
        first[i] = _square_radius(bits_of(first[i]))
    if out.size > 2 * pairs:
        square = _square_radius(bits_of(out[2 * pairs]))
        out[2 * pairs] = _turned(square, _hashed(_word(out.size), low, high))[0]
    for i in range(pairs):
        first[i], second[i] = _turned(first[i], bits_of(second[i]))
