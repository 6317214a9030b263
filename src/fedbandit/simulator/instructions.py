"""Single machine instructions that numba offers no way to write.

Numba widens every 32-bit integer operation to 64 bits, which halves the SIMD lanes, and AVX2 has no 64-bit multiply. It
fuses a multiply with an add only under flags that leave the choice to the compiler. These intrinsics say exactly which
operation is meant, so loops over them vectorise and give the same bits wherever they are inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

__all__ = [
    "add",
    "bits_of",
    "both",
    "either",
    "exclusive_or",
    "float_of_bits",
    "fused",
    "multiply",
    "shift_left",
    "shift_right",
    "shift_right_signed",
    "signed_to_float",
    "subtract",
]

Instruction = Callable[..., Any]


def _binary(name: str) -> Instruction:
    """The LLVM instruction ``name`` on two 32-bit words, which wraps around and gives a 32-bit word."""

    def typed(_context: Any, _first: Any, _second: Any) -> Any:
        def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return getattr(builder, name)(operands[0], operands[1])

        return types.uint32(types.uint32, types.uint32), emit

    return _named(typed, name)


def _conversion(name: str, source: Any, target: Any) -> Instruction:
    """The LLVM conversion ``name`` from one scalar type to another."""

    def typed(_context: Any, _value: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return getattr(builder, name)(operands[0], context.get_value_type(target))

        return target(source), emit

    return _named(typed, f"{name}_to_{target}")


def _fused(_context: Any, _factor: Any, _other: Any, _addend: Any) -> Any:
    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.fma(operands[0], operands[1], operands[2])

    return types.float32(types.float32, types.float32, types.float32), emit


def _named(typed: Callable[..., Any], name: str) -> Instruction:
    """An intrinsic with a unique name, by which the cache of compiled code identifies it."""
    typed.__name__ = typed.__qualname__ = name
    instruction: Instruction = intrinsic(typed)
    return instruction


multiply = _binary("mul")
add = _binary("add")
subtract = _binary("sub")
exclusive_or = _binary("xor")
either = _binary("or_")
both = _binary("and_")
shift_left = _binary("shl")
shift_right = _binary("lshr")
shift_right_signed = _binary("ashr")

bits_of = _conversion("bitcast", types.float32, types.uint32)
float_of_bits = _conversion("bitcast", types.uint32, types.float32)
signed_to_float = _conversion("sitofp", types.uint32, types.float32)

fused = _named(_fused, "fused")  # (factor, other, addend): factor * other + addend in float32, rounded once
