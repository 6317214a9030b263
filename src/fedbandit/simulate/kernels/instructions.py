"""Single machine instructions that numba has no spelling for.

Numba widens every 32-bit integer operation to 64 bits, which halves the SIMD lanes and has no AVX2 multiply; and it
fuses a multiply with an add only under flags that leave the choice to the compiler. These intrinsics say exactly which
operation is meant, so loops over them vectorise and give the same bits wherever they are inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic


def _word_operation(name: str) -> Any:
    """The LLVM instruction ``name`` on two 32-bit words, wrapping, giving a 32-bit word."""

    @intrinsic
    def operation(_context: Any, _first: Any, _second: Any) -> Any:
        def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return getattr(builder, name)(operands[0], operands[1])

        return types.uint32(types.uint32, types.uint32), emit

    return operation


def _conversion(source: Any, target: Any, name: str) -> Any:
    """The LLVM conversion ``name`` from one scalar type to another."""

    @intrinsic
    def conversion(_context: Any, _value: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return getattr(builder, name)(operands[0], context.get_value_type(target))

        return target(source), emit

    return conversion


multiply: Callable[..., Any] = _word_operation("mul")
add: Callable[..., Any] = _word_operation("add")
subtract: Callable[..., Any] = _word_operation("sub")
exclusive_or: Callable[..., Any] = _word_operation("xor")
either: Callable[..., Any] = _word_operation("or_")
shift_left: Callable[..., Any] = _word_operation("shl")
shift_right: Callable[..., Any] = _word_operation("lshr")
shift_right_signed: Callable[..., Any] = _word_operation("ashr")

bits_of: Callable[..., Any] = _conversion(types.float32, types.uint32, "bitcast")
float_of_bits: Callable[..., Any] = _conversion(types.uint32, types.float32, "bitcast")
signed_to_float: Callable[..., Any] = _conversion(types.uint32, types.float32, "sitofp")


@intrinsic
def fused(_context: Any, _factor: Any, _other: Any, _addend: Any) -> Any:
    """factor * other + addend in float32, rounded once."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.fma(operands[0], operands[1], operands[2])

    return types.float32(types.float32, types.float32, types.float32), emit
